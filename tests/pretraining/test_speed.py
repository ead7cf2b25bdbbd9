"""What makes steps fast changes nothing but their time: against the plain way of benchmarks/reference.py; and the benchmarks run."""
import json
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import benchmarks.finetuning
import benchmarks.loader
import benchmarks.preprocessing
import benchmarks.pretraining
import benchmarks.starting
import benchmarks.threads
import finetune
import pretrain
from _utils.config import complete
from _utils.errors import PlainError
from _utils.glue.batches import EncodedRows
from _utils.glue.tasks import TASKS
from _utils.networks.build import build_network
from _utils.networks.dropout import CheapDropout, attention, cheap_dropout, make_dropout_cheap
from _utils.networks.positions import first_position_only
from _utils.recipes import RECIPES
from _utils.training.device import compile_networks
from benchmarks.finetuning import VOCAB_SIZE, fresh_predictor
from benchmarks.reference import OneByOneAdam, ReferenceModel, ReferencePredictor, RowsOneByOne, reference_loss
from pretrain import ELECTRALoss, build_masking, build_model, build_optimizer, slot_capacity


@pytest.fixture
def models(small_tokenizer):
    """(ours, the reference) with the same weights, dropout off, a masked batch, and its labels; both draw the likeliest words."""
    c = complete(pretrain.c.override(["quickstart=True", "temperature=1e-6"]))
    torch.manual_seed(0)
    ours, reference = (build_model(c, small_tokenizer).eval() for _ in range(2))
    reference.load_state_dict(ours.state_dict())
    make_dropout_cheap(ours)
    reference = ReferenceModel(reference)
    reference.gumbel.sample = torch.zeros
    inputs = torch.randint(5, len(small_tokenizer), (8, 32))
    inputs[:, 0], inputs[:, 9], inputs[:, 25:] = 2, 3, 0
    masked, labels, chosen = build_masking(c, small_tokenizer).mask_tokens(inputs)
    return ours, reference.eval(), (masked, torch.full((8,), 10), chosen, labels)


def test_losses_gradients_and_an_update_are_those_of_the_plain_way(models):
    ours, reference, x = models
    losses = [ELECTRALoss()(ours(*x), x[3]), reference_loss(*reference(*x), x[3], x[2])]
    torch.testing.assert_close(*losses, atol=1e-5, rtol=1e-5)
    for loss in losses:
        loss.backward()
    pairs = list(zip(ours.named_parameters(), reference.named_parameters()))
    assert len(pairs) > 60
    for (name, a), (_, b) in pairs:
        torch.testing.assert_close(a.grad, b.grad, atol=2e-6, rtol=1e-3, msg=name)
        b.grad = a.grad.clone()  # the first step of Adam divides by the gradient's size
    build_optimizer(ours, 1e-3).step()
    OneByOneAdam(reference.named_parameters(), 1e-3).step()
    for (name, a), (_, b) in pairs:
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5, msg=name)


def test_half_precision_gives_nearly_the_losses_and_gradients_of_the_plain_way(models):
    ours, reference, x = models
    loss = reference_loss(*reference(*x), x[3], x[2])
    loss.backward()
    with torch.autocast("cpu", torch.bfloat16):
        half = ELECTRALoss()(ours(*x), x[3])
    half.backward()
    torch.testing.assert_close(half, loss, rtol=5e-3, atol=0.)
    mine, plain = (torch.cat([p.grad.flatten() for p in model.parameters()]) for model in (ours, reference))
    assert float(F.cosine_similarity(mine, plain, dim=0)) > .995


@pytest.mark.slow
def test_a_compiled_model_has_the_losses_and_gradients_of_the_plain_way(models):
    ours, reference, x = models
    ours.n_slots = partial(slot_capacity, mlm_probability=.15)
    compile_networks(ours, torch.device("cpu"))
    losses = [ELECTRALoss()(ours(*x), x[3]), reference_loss(*reference(*x), x[3], x[2])]
    torch.testing.assert_close(*losses, atol=1e-5, rtol=1e-5)
    for loss in losses:
        loss.backward()
    for (name, a), (_, b) in zip(ours.named_parameters(), reference.named_parameters()):
        torch.testing.assert_close(a.grad, b.grad, atol=2e-6, rtol=1e-3, msg=name)
    ours.train()
    for _ in range(2):
        loss = ELECTRALoss()(ours(*x), x[3])  # with dropout
        loss.backward()
        assert torch.isfinite(loss) and loss != losses[0]


def test_a_step_of_finetuning_is_that_of_the_plain_way():
    torch.manual_seed(0)
    encoded = [{"inp_ids": torch.randint(5, VOCAB_SIZE, (n,)).tolist(), "token_type_ids": [0] * (n // 2) + [1] * (n - n // 2)}
               for n in (9, 30, 17, 4)]
    rows = EncodedRows(encoded, [0, 1, 1, 0])
    settings = {"bs": 4, "epochs": 1, "lr": 1e-3, "layer_decay": .8, "original_lr_layer_decays": True, "weight_decay": 0.,
                "adam_bias_correction": False, "schedule": "original_linear"}
    model, reference = (fresh_predictor(TASKS["mrpc"], "tiny") for _ in range(2))
    learn = finetune.get_glue_learner("mrpc", inference=True, model=model, data=finetune.EncodedTask(rows, {}), settings=settings,
                                      device=torch.device("cpu"), precision="fp32")
    groups = finetune.parameter_groups(reference)
    pairs = [(name, a, b) for ours, theirs in zip(finetune.parameter_groups(model), groups) for (name, a), (_, b) in zip(ours, theirs)]
    *x, labels = rows.batch(range(4))
    *padded, same_labels = RowsOneByOne(rows, pad_to=40).batch(range(4))
    assert padded[0].shape == (4, 40) and x[0].shape == (4, 30) and labels.equal(same_labels)
    logits = model.eval()(*x), ReferencePredictor(reference).eval()(*padded)
    torch.testing.assert_close(*logits, atol=1e-5, rtol=1e-5)
    losses = learn.loss_func(logits[0], labels), F.cross_entropy(logits[1], labels)
    for loss in losses:
        loss.backward()
    for name, a, b in pairs:
        torch.testing.assert_close(a.grad, b.grad, atol=2e-6, rtol=1e-3, msg=name)
        b.grad = a.grad.clone()  # the first step of Adam divides by the gradient's size
    learn.opt.step()
    for group, lr in zip(groups, finetune.get_layer_lrs(1e-3, .8, 2)):
        OneByOneAdam(group, lr, weight_decay=0.).step()
    assert len(pairs) > 35
    for name, a, b in pairs:
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5, msg=name)


@pytest.mark.parametrize("size, positions", [("tiny", 1), ("bert_tiny", 1), ("albert_tiny", 20)])
def test_the_first_position_alone_has_the_same_vector(size, positions):
    torch.manual_seed(0)
    encoder = build_network("generator", RECIPES[size].encoder.config(100)).base_model.eval()
    ids, mask = torch.randint(5, 100, (3, 20)), torch.ones(3, 20).long()
    mask[1, 10:] = 0
    of_all = encoder(ids, attention_mask=mask).last_hidden_state
    with first_position_only(encoder):
        alone = encoder(ids, attention_mask=mask).last_hidden_state
    assert alone.shape[1] == positions
    torch.testing.assert_close(alone[:, 0], of_all[:, 0], atol=1e-6, rtol=1e-5)
    assert encoder(ids, attention_mask=mask).last_hidden_state.equal(of_all)


@pytest.mark.parametrize("p", [.1, .5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cheap_dropout_drops_its_share_and_keeps_the_mean(p, dtype):
    torch.manual_seed(0)
    x = torch.ones(1001, 999, dtype=dtype, requires_grad=True)  # a number of elements that four does not divide
    y = cheap_dropout(x, p)
    dropped = (y == 0).double().mean()
    assert y.dtype == dtype and float(dropped) == pytest.approx(p, abs=5 * (p * (1 - p) / x.numel()) ** .5)
    assert float(y.detach().double().mean()) == pytest.approx(1, abs=.005)
    assert len(y.detach().unique()) == 2
    y.sum().backward()
    assert x.grad.equal(y.detach())  # what is dropped has no gradient
    columns = (y.detach() == 0).double().mean(0)
    assert abs(columns - p).max() < 7 * (p * (1 - p) / len(x)) ** .5  # no place in a draw of four is special
    assert not cheap_dropout(x, p).equal(y)


@pytest.mark.parametrize("size", ["tiny", "bert_tiny", "albert_tiny"])
def test_every_dropout_becomes_cheap_and_none_acts_in_evaluation(size):
    torch.manual_seed(0)
    network = build_network("generator", RECIPES[size].encoder.config(100)).eval()
    ids = torch.randint(5, 100, (4, 20))
    mask = torch.ones_like(ids).bool()
    mask[1, 10:] = False
    logits = lambda: network(input_ids=ids, attention_mask=mask).logits[mask]
    before = logits()
    make_dropout_cheap(torch.nn.ModuleList([network]))
    assert logits().equal(before)
    kinds = {type(module) for module in network.modules()}
    assert CheapDropout in kinds and torch.nn.Dropout not in kinds and network.config._attn_implementation == "cheap_dropout"
    network.train()
    assert not logits().equal(before) and not logits().equal(logits()) and torch.isfinite(logits()).all()


def test_attention_in_training_is_sdpas_but_for_the_dropped_weights():
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, 7, 4) for _ in range(3))
    mask = torch.ones(2, 1, 7, 7, dtype=torch.bool)
    mask[1, :, :, 5:] = False
    module = torch.nn.Module()
    module.is_causal = False
    plain, nearly_none = (attention(module, query, key, value, mask, dropout=p)[0] for p in (0., 1e-9))
    torch.testing.assert_close(plain, nearly_none)
    many = torch.stack([attention(module, query, key, value, mask, dropout=.1)[0] for _ in range(4000)])
    torch.testing.assert_close(many.mean(0), plain, atol=.05, rtol=.05)
    assert (many.std(0) > 0).all()


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.report.RESULTS", tmp_path)
    return lambda name: json.loads((tmp_path / f"{name}.json").read_text())


def test_the_benchmark_of_pretraining_compares_four_ways(results, capsys):
    benchmarks.pretraining.main(["size=tiny", "bs=2", "max_length=16", "rounds=1", "steps=1", "device=cpu"])
    found = results("pretraining_tiny_cpu")
    assert set(found["rows"]) == {"reference fp32", "pretrain.py fp32", "reference bf16", "pretrain.py bf16"}
    for row in found["rows"].values():
        assert row["ms/step"] > 0 and row["peak MB"] > 0 and row["share of matmul throughput"] > 0
    for shares in (found["shares"][name] for name in ("pretrain.py fp32", "pretrain.py bf16")):
        assert set(shares) == {"data", "masking", "generator", "sampling", "discriminator", "losses", "backward", "optimizer"}
        assert sum(shares.values()) == pytest.approx(1) and shares["backward"] > shares["data"] > 0
    assert "cores" in found["machine"] and found["versions"]["torch"] and "ratio" in capsys.readouterr().out
    with pytest.raises(PlainError, match="Unknown key: 'sise'. Did you mean 'size'"):
        benchmarks.pretraining.main(["sise=tiny"])


def test_the_benchmark_of_finetuning_compares_four_ways(results):
    benchmarks.finetuning.main(["size=tiny", "tasks=cola,mrpc", "rows=12", "bs=4", "max_length=32", "rounds=1", "device=cpu"])
    found = results("finetuning_tiny_cpu")
    assert list(found["rows"]) == ["reference", "reference, padded to 32", "finetune.py fp32", "finetune.py bf16"]
    reference, padded, *ours = found["rows"].values()
    assert all(row["rows/s"] > 0 and row["tokens/row"] == reference["tokens/row"] for row in ours)
    assert padded["tokens/row"] == 32 > reference["tokens/row"] and reference["ratio"] == 1
    assert found["rows_of_a_pass"] == {"cola": 12, "mrpc": 24}
    with pytest.raises(PlainError, match="'stsb' is not a task of this benchmark"):
        benchmarks.finetuning.main(["tasks=stsb"])


def test_the_benchmark_of_threads_compares_settings_idle_and_busy(results, monkeypatch):
    monkeypatch.setattr(benchmarks.threads, "SETTINGS", {"default": {}})  # each measurement is a process that imports torch
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    benchmarks.threads.main(["size=tiny", "bs=2", "max_length=16", "rounds=1", "seconds=1"])
    [row] = results("threads_tiny_default")["rows"].values()
    assert row["idle tokens/s"] > 0 and row["busy tokens/s"] > 0 and row["idle ratio"] == row["busy ratio"] == 1


def test_the_benchmarks_of_loader_and_preprocessing_run(results, tmp_path, monkeypatch):
    benchmarks.loader.main(["examples=200", "bs=8", "max_length=16", "rounds=1", "workers=(0,)"])
    assert results("loader_default")["rows"]["batches, 0 workers"]["ratio"] > 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n\n".join(f"Document {i} has a few words and some more of them." for i in range(300)))
    benchmarks.preprocessing.main(["datas=text.txt", "vocab=200", "megabytes=.04", "processes=(1,)", "rounds=1"])
    found = results("preprocessing_default")
    assert set(found["rows"]) == {"tokenizers alone", "1 processes"} and found["bytes"] >= 40_000
    assert found["rows"]["1 processes"]["ratio to 1 processes"] == 1


def test_the_benchmark_of_starting_measures_three_starts_of_two_corpora(results, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"Line {i} has a few words and some more of them." for i in range(300)))
    benchmarks.starting.main([f"text={text}", "documents=50", "files=20", "rounds=1"])
    found = results("starting_default")["rows"]
    assert [*found] == [f"{form}, {start}" for form in ("one file", "many files") for start in ("first", "documents opened", "next")]
    assert all(row["seconds"] > 0 and row["MB"] >= 0 for row in found.values()) and found["one file, first"]["ratio"] == 1
