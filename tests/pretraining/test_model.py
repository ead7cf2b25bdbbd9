"""The networks: sizes and names of the original, tying, and what one forward pass promises."""
import copy
import json
from functools import partial

import pytest
import torch
from electra_models import build
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import pretrain
from _utils.config import complete
from _utils.optim import decay_groups
from _utils.training.metrics import PretrainingMetrics
from pretrain import ELECTRALoss, mask_tokens, slot_capacity


@pytest.mark.parametrize("size", ["small", "base", "large"])
def test_golden_parameter_counts(golden, size):
    recorded = json.loads((golden / "electra_pytorch/param_counts.json").read_text())[size]
    with torch.device("meta"):
        model = build(size)
    count = lambda module: sum(p.numel() for p in module.parameters())
    assert (count(model.generator), count(model.discriminator), count(model)) == (
        recorded["generator"], recorded["discriminator"], recorded["tied_total"])
    config = model.generator.config
    assert recorded["gen_config"] == {"hidden": config.hidden_size, "heads": config.num_attention_heads,
                                      "intermediate": config.intermediate_size, "layers": config.num_hidden_layers,
                                      "embedding": config.embedding_size}


def test_golden_names_and_weight_decay_of_the_small_model(golden):
    recorded = json.loads((golden / "electra_pytorch/param_counts.json").read_text())["small"]
    with torch.device("meta"):
        model = build("small")
    assert sum(p.numel() for p in model.parameters()) == 14_196_219  # F27
    names = {id(p): name for name, p in model.named_parameters()}
    decayed, plain = ({names[id(p)] for p in group["params"]} for group in decay_groups(model.named_parameters()))
    assert decayed == set(recorded["weight_decay_names"]) and plain == set(recorded["no_weight_decay_names"])


def test_layernorm_eps_is_that_of_the_original_everywhere():
    with torch.device("meta"):
        model = build("small")
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert len(norms) == 51 and {norm.eps for norm in norms} == {1e-12}  # F29


def test_dropout_is_a_tenth_in_both_networks_and_not_in_their_heads():
    with torch.device("meta"):
        model = build("small")
    for network, heads in ((model.generator, ["generator_predictions", "generator_lm_head"]),
                           (model.discriminator, ["discriminator_predictions"])):
        config = network.config
        assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (.1, .1)
        found = [name for name, module in network.named_modules() if isinstance(module, torch.nn.Dropout)]
        assert len(found) == 1 + 3 * 12 and all(network.get_submodule(name).p == .1 for name in found)  # F23
        assert not any(name.startswith(head) for name in found for head in heads)


def assert_tied(model):
    shared, other = (dict(network.base_model.embeddings.named_parameters()) for network in (model.generator, model.discriminator))
    assert len(shared) == 5 and all(other[name] is parameter for name, parameter in shared.items())
    assert model.generator.get_output_embeddings().weight is shared["word_embeddings.weight"]


def test_tying_survives_construction_loading_moving_and_copying():
    model = build("tiny", 100)
    assert_tied(model)
    other = build("tiny", 100)
    other.load_state_dict(model.state_dict())
    assert_tied(other)
    assert_tied(other.to(torch.float64))
    assert_tied(copy.deepcopy(other))


def test_wrapping_for_several_processes_leaves_the_tying_and_the_gradients(batch, tmp_path):
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
    for ours, theirs in zip(plain.parameters(), wrapped.module.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.fixture
def batch():
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


def test_a_word_guessed_right_counts_as_original(batch):
    inputs, x = batch
    model = build("tiny", 100, temperature=1e-4)
    _, _, chosen, labels = x
    guess = torch.nn.functional.one_hot(labels[chosen], 100).float()
    model.generator_logits = lambda *_: guess
    assert not model(*x).is_replaced.any()


def test_logits_at_masked_positions_are_those_of_the_whole_generator(batch):
    """The gathered head gives the numbers that transformers' model gives at all positions (D16)."""
    _, x = batch
    model = build("tiny", 100).eval()
    masked, lengths, chosen, labels = x
    types = ((torch.arange(40) >= 20) & (masked != 0)).long()
    everywhere = model.generator(masked, (masked != 0), types).logits
    torch.testing.assert_close(model(*x).mlm_gen_logits, everywhere[chosen], atol=1e-5, rtol=1e-5)


def test_fixed_slots_give_the_same_losses_and_gradients(batch):
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
def test_slots_fixed_as_on_a_gpu_give_the_same_losses_for_each_masking(small_tokenizer, masking):
    """Rows of many lengths, duplicates and unused slots among them."""
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
        pred, totals = network(*x), network.totals(*x)
        loss, parts = ELECTRALoss()(pred, labels, totals, return_parts=True)
        losses.append(parts)
        metrics.update(pred, labels, loss, parts, totals)
    assert masking == "bernoulli" or ((chosen > 1).any() and len(pred.mlm_gen_logits) == 16 * 9)
    assert len(pred.mlm_gen_logits) > chosen.sum()
    torch.testing.assert_close(*losses)
    assert metrics.compute()["masks_dropped"] == 0


def test_no_gradient_reaches_the_generators_encoder_from_the_discriminator(batch):
    _, x = batch
    model = build("tiny", 100)
    ELECTRALoss(loss_weights=(0., 50.))(model(*x), x[3]).backward()
    encoder = [p.grad for p in model.generator.electra.encoder.parameters()]
    assert all(grad is None or not grad.any() for grad in encoder)  # F18
    assert model.generator.electra.embeddings.word_embeddings.weight.grad.any()


def test_padding_does_not_change_the_logits_of_tokens(batch):
    _, (masked, lengths, chosen, labels) = batch
    model = build("tiny", 100, temperature=1e-4).eval()
    long = model(masked, lengths, chosen, labels).disc_logits[:, :30]
    short = model(masked[:, :30], lengths, chosen[:, :30], labels[:, :30]).disc_logits
    torch.testing.assert_close(long, short, atol=1e-5, rtol=1e-4)
