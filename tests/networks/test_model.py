"""The networks: parameter counts and names, tied weights, and logits at masked positions."""
import copy

import pytest
import torch
from electra_models import Vocabulary, build
from recorded import recorded

import pretrain
from _utils.config import complete
from _utils.networks import count_parameters, load_with_head
from _utils.networks.build import build_network
from _utils.optim import decay_groups
from _utils.recipes import RECIPES
from _utils.runs.checkpoints import save_pretrained
from pretrain import ELECTRAModel, mask_tokens


@pytest.mark.parametrize("size", ["small", "base", "large"])
def test_parameter_counts_match_electra_pytorch(size):
    expected = recorded("electra_pytorch/param_counts.json")[size]
    with torch.device("meta"):
        model = build(size)
    counts = [count_parameters(module) for module in (model.generator, model.discriminator, model)]
    assert counts == [expected["generator"], expected["discriminator"], expected["tied_total"]]
    assert size != "small" or counts[2] == 14_196_219  # F27
    config = model.generator.config
    names = {"hidden": "hidden_size", "heads": "num_attention_heads", "intermediate": "intermediate_size",
             "layers": "num_hidden_layers", "embedding": "embedding_size"}
    assert {name: getattr(config, ours) for name, ours in names.items()} == expected["gen_config"]


def test_both_networks_of_the_released_small_model_have_the_size_of_the_discriminator_of_the_paper():
    assert RECIPES["small++"].generator == RECIPES["small++"].discriminator == RECIPES["small"].discriminator


def test_decayed_parameters_layernorms_and_dropout_of_the_small_model():
    expected = recorded("electra_pytorch/param_counts.json")["small"]
    with torch.device("meta"):
        model = build("small")
    names = {id(p): name for name, p in model.named_parameters()}
    decayed, not_decayed = ({names[id(p)] for p in group["params"]} for group in decay_groups(model.named_parameters()))
    assert decayed == set(expected["weight_decay_names"]) and not_decayed == set(expected["no_weight_decay_names"])
    modules = list(model.modules())
    norms = [module.eps for module in modules if isinstance(module, torch.nn.LayerNorm)]
    dropouts = [module.p for module in modules if isinstance(module, torch.nn.Dropout)]
    assert norms == 51 * [1e-12] and dropouts == 2 * (1 + 3 * 12) * [.1]  # F29, F23; none in the heads


def test_tying_survives_construction_loading_moving_and_copying():
    first, second = build("tiny", 100), build("tiny", 100)
    second.load_state_dict(first.state_dict())
    for model in (first, second, second.to(torch.float64), copy.deepcopy(second)):
        generator, discriminator = model.generator.electra.embeddings, model.discriminator.electra.embeddings
        assert all(a is b for a, b in zip(generator.parameters(), discriminator.parameters(), strict=True))
        assert model.generator.get_output_embeddings().weight is generator.word_embeddings.weight


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_checkpoint_has_the_output_layer_of_the_generator_also_if_an_edit_unties_it(
        monkeypatch, tmp_path, small_tokenizer, is_tied):
    tie = pretrain.tie

    def edited(generator, discriminator=None, tying="embeddings"):
        tie(generator, discriminator, tying)
        if not is_tied:
            output = generator.get_output_embeddings()
            output.weight = torch.nn.Parameter(torch.randn_like(output.weight))

    monkeypatch.setattr(pretrain, "tie", edited)
    c = complete(pretrain.c.override(["size=tiny"]))
    model = pretrain.build_model(c, small_tokenizer)
    save_pretrained(tmp_path / "a.pth", model, c, small_tokenizer, step=0)
    loaded = load_with_head(str(tmp_path / "a.pth"), "generator").network
    layers = [[network.get_input_embeddings().weight, network.get_output_embeddings().weight]
              for network in (model.generator, loaded)]
    assert all(map(torch.equal, *layers)) and (loaded.get_output_embeddings().weight is layers[1][0]) == is_tied


@pytest.mark.parametrize("size", ["bert_tiny", "albert_tiny"])
def test_logits_at_masked_positions_equal_those_of_the_whole_sequence(size):
    """The generator's head runs on masked positions only (D16)."""
    torch.manual_seed(0)
    inputs = torch.randint(5, 100, (6, 40))
    inputs[:, 30:] = 0
    masked, labels, chosen = mask_tokens(inputs, 4, 100, [0, 1, 2, 3, 4])
    generator = build_network("generator", RECIPES[size].generator.config(100)).eval()
    pred = ELECTRAModel(generator, None, Vocabulary())(masked, torch.full((6,), 20), chosen, labels)
    types = ((torch.arange(40) >= 20) & (masked != 0)).long()
    everywhere = generator(input_ids=masked, attention_mask=masked != 0, token_type_ids=types).logits
    torch.testing.assert_close(pred.mlm_gen_logits, everywhere[chosen], atol=1e-5, rtol=1e-5)
