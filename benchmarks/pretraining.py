"""Pretraining steps against the way electra_pytorch computes them, alternating in one process.

    python -m benchmarks.pretraining [size=small] [bs=32] [max_length=128] [device=cpu] [rounds=5] [steps=3]

Prints ms/step, tokens/s, the ratio to the reference of the same round, peak memory of a step's tensors, and the share of the machine's
measured matrix rate; writes them to benchmarks/results/. The text does not matter here: ids are random, examples full.
"""
import sys
import time
from statistics import median

import torch

import pretrain
from _utils.compute import flops_per_token
from _utils.config import complete
from _utils.config_rules import PRETRAIN_RULES, count
from _utils.dropout import make_dropout_cheap
from _utils.optim import clip_by_global_norm
from _utils.recipes import RECIPES
from _utils.training import DTYPES, choose_device, set_seed
from _utils.vocabulary import tokenizer_of_words
from benchmarks.reference import OneByOneAdam, ReferenceModel, reference_step
from benchmarks.report import describe_machine, matrix_rate, parse, peak_bytes, write_results

DEFAULTS = {"size": "small", "bs": None, "max_length": None, "device": None, "rounds": 5, "steps": 3}
RULES = {**{key: PRETRAIN_RULES[key] for key in ("size", "bs", "max_length", "device")}, "rounds": count(), "steps": count()}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(30517))]


def our_step(learn, batch, precision):
    """What PretrainingLearner does with one batch, without its callbacks."""
    model, masked_lm, loss_func, optimizer = learn
    input_ids, lengths = batch
    masked, labels, chosen = masked_lm.mask_tokens(input_ids)
    x = masked, lengths, chosen, labels
    totals = model.totals(*x)
    with torch.autocast(input_ids.device.type, DTYPES[precision], enabled=precision != "fp32"):
        loss = loss_func.weigh(loss_func.parts(model(*x), labels, totals))
    loss.backward()
    clip_by_global_norm(model.parameters())
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def variants(c, hf_tokenizer, device):
    """{name: function of a batch that takes one step}, each with a model of its own."""
    def ours(precision):
        set_seed(0)
        model = pretrain.build_model(c, hf_tokenizer, fixed_slots=device.type == "cuda").to(device)
        if device.type == "cpu":
            make_dropout_cheap(model)
        learn = model, pretrain.build_masking(c, hf_tokenizer), pretrain.ELECTRALoss(), pretrain.build_optimizer(model, 1e-4)
        return lambda batch: our_step(learn, batch, precision)

    def reference(precision):
        set_seed(0)
        model = ReferenceModel(pretrain.build_model(c, hf_tokenizer)).to(device)
        optimizer = OneByOneAdam(model.named_parameters(), 1e-4)
        ids = hf_tokenizer.mask_token_id, len(hf_tokenizer), hf_tokenizer.all_special_ids
        return lambda batch: reference_step(model, optimizer, batch, ids, precision)

    return {"reference fp32": reference("fp32"), "ours fp32": ours("fp32"), "reference bf16": reference("bf16"), "ours bf16": ours("bf16")}


def random_batch(c, device):
    ids = torch.randint(5, len(WORDS), (c.bs, c.max_length), device=device)
    ids[:, 0], ids[:, c.max_length // 2], ids[:, -1] = 2, 3, 3
    return ids, torch.full((c.bs,), c.max_length // 2 + 1, device=device)


def measure(steps, batches, device, rounds, n):
    """{name: seconds per step of each round}; the variants take turns within a round."""
    def timed(step):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for i in range(n):
            step(batches[i % len(batches)])
        if device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / n

    for step in steps.values():
        step(batches[0])
    seconds = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            seconds[name].append(timed(step))
    return seconds


def main(arguments):
    given = parse(arguments, DEFAULTS, RULES)
    device = choose_device(given["device"])
    c = complete(pretrain.c.override([f"size={given['size']}", *(f"{key}={given[key]}" for key in ("bs", "max_length") if given[key])]))
    hf_tokenizer = tokenizer_of_words(WORDS)
    batches = [random_batch(c, device) for _ in range(4)]
    steps = variants(c, hf_tokenizer, device)
    seconds = measure(steps, batches, device, given["rounds"], given["steps"])
    tokens, flops = c.bs * c.max_length, flops_per_token(RECIPES[c.size], len(WORDS), c.max_length, c.mask_prob)
    rates = {precision: matrix_rate(device, DTYPES[precision] or torch.float32) for precision in ("fp32", "bf16")}
    rows = {}
    for name, step in steps.items():
        base = seconds["reference fp32"]
        rows[name] = {"ms/step": 1e3 * median(seconds[name]), "tokens/s": tokens / median(seconds[name]),
                      "ratio to reference fp32": median(a / b for a, b in zip(base, seconds[name])),
                      "peak MB": peak_bytes(lambda step=step: step(batches[0]), device) / 1e6,
                      "share of matrix rate": tokens * flops / median(seconds[name]) / rates[name.split()[1]]}
    write_results("pretraining", rows, {**given, "bs": c.bs, "max_length": c.max_length, "rounds_seconds": seconds,
                                        "machine": describe_machine(device), "matrix_flops": rates})


if __name__ == "__main__":
    main(sys.argv[1:])
