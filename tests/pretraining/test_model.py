"""The networks: parameter counts and names, tied weights, and the forward pass."""
import copy
import json
from functools import partial

import pytest
import torch
from electra_models import build
from tiny_pretraining import run
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import pretrain
from _utils.config import complete
from _utils.networks import count_parameters
from _utils.optim import decay_groups
from _utils.training.metrics import PretrainingMetrics
from pretrain import ELECTRALoss, mask_tokens, slot_capacity


@pytest.mark.parametrize("size", ["small", "base", "large"])
def test_parameter_counts_match_electra_pytorch(golden, size):
    recorded = json.loads((golden / "electra_pytorch/param_counts.json").read_text())[size]
    with torch.device("meta"):
        model = build(size)
    counts = [count_parameters(module) for module in (model.generator, model.discriminator, model)]
    assert counts == [recorded["generator"], recorded["discriminator"], recorded["tied_total"]]
    config = model.generator.config
    assert recorded["gen_config"] == {"hidden": config.hidden_size, "heads": config.num_attention_heads,
                                      "intermediate": config.intermediate_size, "layers": config.num_hidden_layers,
                                      "embedding": config.embedding_size}


def test_decayed_parameters_of_the_small_model_match_electra_pytorch(golden):
    recorded = json.loads((golden / "electra_pytorch/param_counts.json").read_text())["small"]
    with torch.device("meta"):
        model = build("small")
    assert count_parameters(model) == 14_196_219  # F27
    names = {id(p): name for name, p in model.named_parameters()}
    decayed, not_decayed = ({names[id(p)] for p in group["params"]} for group in decay_groups(model.named_parameters()))
    assert decayed == set(recorded["weight_decay_names"]) and not_decayed == set(recorded["no_weight_decay_names"])


def test_every_layernorm_has_eps_1e_12():
    with torch.device("meta"):
        model = build("small")
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert len(norms) == 51 and {norm.eps for norm in norms} == {1e-12}  # F29


def test_dropout_is_one_tenth_in_both_networks_and_absent_from_their_heads():
    with torch.device("meta"):
        model = build("small")
    for network, heads in ((model.generator, ["generator_predictions", "generator_lm_head"]),
                           (model.discriminator, ["discriminator_predictions"])):
        config = network.config
        assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (.1, .1)
        dropouts = {name: module.p for name, module in network.named_modules() if isinstance(module, torch.nn.Dropout)}
        assert len(dropouts) == 1 + 3 * 12 and set(dropouts.values()) == {.1}  # F23
        assert not any(name.startswith(head) for name in dropouts for head in heads)


def assert_tied(model):
    of_generator = dict(model.generator.base_model.embeddings.named_parameters())
    of_discriminator = dict(model.discriminator.base_model.embeddings.named_parameters())
    assert len(of_generator) == 5 and all(of_discriminator[name] is parameter for name, parameter in of_generator.items())
    assert model.generator.get_output_embeddings().weight is of_generator["word_embeddings.weight"]


def test_tying_survives_construction_loading_moving_and_copying():
    model = build("tiny", 100)
    assert_tied(model)
    other = build("tiny", 100)
    other.load_state_dict(model.state_dict())
    assert_tied(other)
    assert_tied(other.to(torch.float64))
    assert_tied(copy.deepcopy(other))


def test_distributed_data_parallel_keeps_tying_and_gradients(batch, tmp_path):
    _, x = batch
    torch.manual_seed(0)
    plain = build("tiny", 100, temperature=1e-4).eval()
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(copy.deepcopy(plain))
        assert_tied(wrapped.module)
        for model in (plain, wrapped):
            ELECTRALoss()(model(*x), x[3]).backward()
    finally:
        distributed.destroy_process_group()
    for a, b in zip(plain.parameters(), wrapped.module.parameters()):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.fixture
def batch():
    """(token ids (6, 40), inputs of the model)."""
    torch.manual_seed(0)
    inputs = torch.randint(5, 100, (6, 40))
    inputs[:, 0], inputs[:, 19], inputs[:, 29], inputs[:, 30:] = 2, 3, 3, 0
    masked, labels, chosen = mask_tokens(inputs, 4, 100, [0, 1, 2, 3, 4], replace_prob=0., orginal_prob=.15)
    return inputs, (masked, torch.full((6,), 20), chosen, labels)


def test_forward_replaces_only_masked_tokens_and_labels_only_changed_ones(batch):
    inputs, x = batch
    model = build("tiny", 100)
    pred = model(*x)
    assert pred.generated[~x[2]].equal(inputs[~x[2]])
    assert pred.is_replaced.equal(pred.generated != inputs)
    assert pred.attention_mask.equal(inputs != 0)
    assert pred.mlm_gen_logits.shape == (int(x[2].sum()), 100) and pred.disc_logits.shape == inputs.shape


def test_sample_equal_to_the_original_token_counts_as_original(batch):
    inputs, x = batch
    model = build("tiny", 100, temperature=1e-4)
    _, _, chosen, labels = x
    logits = torch.nn.functional.one_hot(labels[chosen], 100).float()
    model.generator_logits = lambda *_: logits
    assert not model(*x).is_replaced.any()


def test_logits_at_masked_positions_equal_those_of_the_whole_sequence(batch):
    """The generator's head runs on masked positions only (D16)."""
    _, x = batch
    model = build("tiny", 100).eval()
    masked, lengths, chosen, labels = x
    types = ((torch.arange(40) >= 20) & (masked != 0)).long()
    of_all_positions = model.generator(masked, (masked != 0), types).logits
    torch.testing.assert_close(model(*x).mlm_gen_logits, of_all_positions[chosen], atol=1e-5, rtol=1e-5)


def test_fixed_number_of_slots_gives_the_same_loss_and_gradients(batch):
    _, x = batch
    exact = build("tiny", 100, temperature=1e-4).eval()
    fixed = copy.deepcopy(exact)
    fixed.n_slots = partial(slot_capacity, mlm_probability=.15)
    losses = []
    for model in (exact, fixed):
        loss = ELECTRALoss()(model(*x), x[3])
        loss.backward()
        losses.append(loss)
    torch.testing.assert_close(*losses)
    for a, b in zip(exact.parameters(), fixed.parameters()):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("masking", ["bernoulli", "official"])
def test_fixed_number_of_slots_gives_the_same_losses_with_each_masking(small_tokenizer, masking):
    """The rows have different lengths; some slots are unused, and some positions are masked twice."""
    c = complete(pretrain.c.override(["quickstart=True", f"masking={masking}", "temperature=1e-4", "max_length=64"]))
    torch.manual_seed(0)
    inputs = torch.randint(5, len(small_tokenizer), (16, 64))
    inputs[:, 0], inputs[:, 1] = 2, 3
    for row in range(16):
        inputs[row, 6 + 4 * row:] = 0
    masked, labels, chosen = pretrain.build_masking(c, small_tokenizer).mask_tokens(inputs)
    x = masked, torch.full((16,), 2), chosen, labels
    model = pretrain.build_model(c, small_tokenizer).eval()
    fixed = pretrain.build_model(c, small_tokenizer, fixed_slots=True).eval()
    fixed.load_state_dict(model.state_dict())
    metrics, losses = PretrainingMetrics(), []
    for network in (model, fixed):
        pred, counts = network(*x), network.counts(*x)
        loss, terms = ELECTRALoss()(pred, labels, counts, return_losses=True)
        losses.append(terms)
        metrics.add(pred, x, loss, terms, counts)
    assert masking == "bernoulli" or ((chosen > 1).any() and len(pred.mlm_gen_logits) == 192)  # 16 * 9, rounded up
    assert len(pred.mlm_gen_logits) > chosen.sum()
    torch.testing.assert_close(*losses)
    assert metrics.compute()["masks_dropped"] == 0


def test_discriminator_loss_gives_the_generator_encoder_no_gradient(batch):
    _, x = batch
    model = build("tiny", 100)
    ELECTRALoss(loss_weights=(0., 50.))(model(*x), x[3]).backward()
    gradients = [p.grad for p in model.generator.electra.encoder.parameters()]
    assert all(grad is None or not grad.any() for grad in gradients)  # F18
    assert model.generator.electra.embeddings.word_embeddings.weight.grad.any()


def test_padding_does_not_change_the_logits_of_tokens(batch):
    _, (masked, lengths, chosen, labels) = batch
    model = build("tiny", 100, temperature=1e-4).eval()
    padded = model(masked, lengths, chosen, labels).disc_logits[:, :30]
    unpadded = model(masked[:, :30], lengths, chosen[:, :30], labels[:, :30]).disc_logits
    torch.testing.assert_close(padded, unpadded, atol=1e-5, rtol=1e-4)


def test_micro_batches_on_the_cpu_are_as_long_as_their_longest_row_and_have_the_same_metrics(workplace):
    learn = run("steps=1", "temperature=1e-6", "micro_batch=2")
    torch.manual_seed(0)
    ids = torch.randint(5, 100, (8, 32))
    for row, length in enumerate((32, 6, 20, 6, 31, 5, 12, 19)):
        ids[row, length:] = 0
    x, counts = learn.masks(ids, torch.full((8,), 4))
    learn.model.eval()
    found = {}
    for learn.pad_token_id in (None, 0):  # static shapes are not cut
        learn.train_metrics.state.zero_()
        micro_batches = [micro_batch for _, micro_batch in learn.micro_batches(x)]
        for micro_batch in micro_batches:
            learn.forward(micro_batch, counts)
        found[learn.pad_token_id] = learn.train_metrics.compute()
        assert [rows[0].shape[1] for rows in micro_batches] == ([32] * 4 if learn.pad_token_id is None else [32, 20, 12, 6])
        assert sorted(rows[0][i].ne(0).sum().item() for rows in micro_batches for i in range(2)) == [5, 6, 6, 12, 19, 20, 31, 32]
    for name, value in found[None].items():
        assert found[0][name] == pytest.approx(value, rel=1e-5), name
