"""Kernel launches and bytes of a compiled step on a GPU, counted without one.

    python -m benchmarks.launches [size=small] [layers=12] [masking=official] [sampling=fp32_gumbel] ...

torch.compile's Inductor generates the code of forward and backward pass for an H200 that does not exist: with fake CUDA
tensors, which have no values, and without compiling the kernels. Counted are the launches in that code, and the bytes
that its kernels and products read and write. Masks, metrics and the update are left out. With every kernel alone, and
combined as in a run (`cuda_graph.GPU_OPTIONS`).
layers: of each network, to save time; the counts grow by the same number with each layer. Prints a table, and writes it
to benchmarks/results/.
"""
import contextlib
import re
import sys
from types import SimpleNamespace
from unittest import mock

import torch
import torch.nn.functional as F
import triton
from torch._dynamo.device_interface import CudaInterface
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext, detect_fake_mode, tracing
from torch._inductor import config as inductor
from torch._inductor.compile_fx import _recursive_joint_graph_passes, compile_fx_inner, select_decomp_table
from torch._inductor.fx_passes import joint_graph
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch.func import functional_call
from triton.backends.compiler import GPUTarget

import pretrain
from _utils.config import complete
from _utils.keys import PRETRAIN_KEYS, Count
from _utils.objectives.kinds import objective_of
from _utils.text.vocabulary import tokenizer_from_tokens
from _utils.training.cuda_graph import GPU_OPTIONS
from _utils.training.processes import Processes
from benchmarks.fake_cuda import fake_cuda
from benchmarks.pretraining import VOCABULARY
from benchmarks.report import parse, write_results

DEFAULTS = {"size": "small", "layers": None, "bs": None, "max_length": None, "precision": "bf16", "masking": "official",
            "sampling": "fp32_gumbel"}
TYPES = {**{key: PRETRAIN_KEYS[key] for key in DEFAULTS if key != "layers"}, "layers": Count | None}
KINDS = {"triton": r"triton_\w+\.run\(", "products": r"extern_kernels\.\w+\(", "others": r"= torch\.ops\.\w+\.\w+"}

H200 = SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=150_110_000_000,
    warp_size=32,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    L2_cache_size=62914560,
    gcnArchName="",
    clock_rate=1_980_000,
    memory_clock_rate=3_201_000,
    memory_bus_width=6144,
    is_integrated=0,
    uuid="",
)


@contextlib.contextmanager
def pretended_h200():
    """Context in which Inductor and Triton find an H200 when they ask for the current device and its properties."""
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_properties": H200,
        "get_device_capability": (9, 0),
        "synchronize": None,
        "set_device": None,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "set_rng_state": None,
    }
    target = SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32), get_current_device=lambda: 0)
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, lambda *_, answer=answer, **__: answer))
        stack.enter_context(mock.patch.object(torch.cuda, "get_rng_state", lambda *_: torch.get_rng_state()))
        for owner in (CudaInterface, CudaInterface.Worker):
            for name in ("current_device", "get_device_properties"):
                stack.enter_context(
                    mock.patch.object(owner, name, staticmethod(lambda *_, answer=answers[name]: answer))
                )
        stack.enter_context(mock.patch.object(CudaInterface, "is_available", staticmethod(lambda: True)))
        stack.enter_context(mock.patch.object(triton.runtime.driver, "_active", target))
        yield


def efficient_attention(query, key, value, attn_mask, dropout_p=0., scale=None, **_):
    """What scaled_dot_product_attention runs on a GPU with an additive mask under autocast; fake tensors would get its
    parts instead.
    """
    query, key, value, mask = (x.bfloat16() for x in (query, key, value, attn_mask))
    batch, heads, length, _ = query.shape
    mask = mask.expand(batch, heads, length, length)
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, True, dropout_p, scale=scale
    )[0]


def joint_graph_of(c, layers):
    """The graph of forward and backward pass of a configuration on fake CUDA tensors. layers: of each network; None:
    all.
    """
    device = torch.device("cuda", 0)
    with device:
        hf_tokenizer = tokenizer_from_tokens(VOCABULARY)
        pair = objective_of(c).fresh(c, len(hf_tokenizer), hf_tokenizer.pad_token_id)
        for network in pair:
            network.base_model.encoder.layer = network.base_model.encoder.layer[:layers]
        learn = pretrain.build_learner(c, hf_tokenizer, SimpleNamespace(device=device), pair, Processes())
    masked, counts = learn.masks(*learn.on_device((torch.full((c.bs, c.max_length), 7), torch.full((c.bs,), 10))))
    names = {parameter: name for name, parameter in learn.model.named_parameters()}
    buffers = dict(learn.model.named_buffers())
    given = {**{names[p]: leaf for p, leaf in zip(learn.gradients.parameters, learn.gradients.leaves)}, **buffers}

    def loss(*inputs):
        tensors, masked, counts = inputs[:len(given)], inputs[len(given):-2], inputs[-2:]
        with learn.autocast():
            output = functional_call(learn.model, dict(zip(given, tensors)), masked)
            return (learn.loss_func(output, masked[-1], counts),)

    learn.model.train()
    return aot_export_joint_simple(
        loss, (*given.values(), *masked, *counts), trace_joint=True, decompositions=select_decomp_table()
    )


def lowered(joint, options):
    """{"forward": (code, bytes), "backward": ...}: what Inductor generates for the two halves of a joint graph, with
    its options.
    """
    placeholders = lambda graph: [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    found = {}

    def keep_code(graph):
        wrapper, _ = graph.codegen()
        n_bytes = sum(node.get_read_write_buffers_sizes() for node in graph.scheduler.nodes)
        found["backward" if graph.is_backward else "forward"] = wrapper.value, n_bytes
        # instead of loading the code, which would compile the kernels
        return SimpleNamespace(call=None, __file__="", runner=None)

    mode = detect_fake_mode(placeholders(joint))
    options = {"fx_graph_cache": False, "joint_graph_constant_folding": False, **options}
    with (inductor.patch(options), mock.patch.object(GraphLowering, "compile_to_module", keep_code),
          mock.patch.object(joint_graph, "lazy_init", lambda *_: None),  # would run patterns on a GPU
          tracing(TracingContext(mode)), V.set_fake_mode(mode)):
        _recursive_joint_graph_passes(joint)
        halves = min_cut_rematerialization_partition(joint, placeholders(joint), num_fwd_outputs=1, compiler="inductor")
        for is_backward, half in enumerate(halves):
            inputs = placeholders(half)
            compile_fx_inner(half, inputs, is_backward=bool(is_backward), static_input_idxs=range(len(inputs)))
    return found


def count_launches(c, layers=None):
    """{"forward, separate": {kind: launches, ..., "GB"}, ...} of a completed configuration. layers: of each network;
    None: all.
    """
    rows = {}
    for name, options in {"separate": {}, "combined": GPU_OPTIONS}.items():
        with fake_cuda(), mock.patch.object(F, "scaled_dot_product_attention", efficient_attention):
            joint = joint_graph_of(c, layers)
            with pretended_h200():
                found = lowered(joint, options)
        for half, (code, n_bytes) in found.items():
            call = code[code.index("def call("):]
            rows[f"{half}, {name}"] = {kind: len(re.findall(pattern, call)) for kind, pattern in KINDS.items()} | {
                "GB": n_bytes / 1e9
            }
    return rows


def main(arguments):
    given = parse(arguments, DEFAULTS, TYPES)
    settings = [f"{key}={given[key]}" for key in DEFAULTS if key != "layers" and given[key]]
    c = complete(pretrain.c.override(["device=cuda", "compile=True", *settings]))
    rows = count_launches(c.copy_with({"micro_batch": c.bs}), given.layers)
    write_results("launches", rows, dict(given), device=None)



if __name__ == "__main__":
    main(sys.argv[1:])
