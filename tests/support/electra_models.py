"""ELECTRAModels with the shapes of a recipe, their parameters by Google's names, and a batch with recorded masks."""
import torch

from _utils.commands.convert_tf import google_name
from _utils.networks.build import PARTS, build_network
from _utils.networks.two_towers import TwoTowers
from _utils.recipes import RECIPES
from pretrain import ELECTRAModel


class Vocabulary:
    """The attributes of a tokenizer that ELECTRAModel uses."""
    pad_token_id = 0


def build(size, vocab_size=30522, **kwargs):
    """The ELECTRAModel of a recipe, with fresh weights."""
    return ELECTRAModel(
        *(build_network(part, getattr(RECIPES[size], part).config(vocab_size)) for part in PARTS),
        Vocabulary(),
        **kwargs,
    )


def by_google_name(model, variables=("generator/encoder/",)):
    """{Google's name: parameter} of both networks. variables: names in Google's checkpoint."""
    return {google_name(of_two_towers(name) if isinstance(network, TwoTowers) else name, part, variables): parameter
            for part, network in model.named_children() for name, parameter in network.named_parameters()}


def of_two_towers(name):
    """The name of a parameter of TwoTowers with which `google_name` gives Google's (F98)."""
    if name == "predictions.decoder.bias":
        return "cloze_predictions.output_bias"
    if name.startswith("predictions."):
        return f"cloze_{name}"
    return f"generator_{name}".replace("generator_ltr.embeddings", "electra.embeddings")


def as_googles(name, tensor):
    """The array of Google's variable: its kernels are the transposes of weights."""
    return (tensor.T if name.endswith("kernel") else tensor).detach().numpy()


def masked_batch(inputs):
    """(the model's inputs, samples (M,), order): a recorded batch of 8 examples with the masks and samples in `inputs`,
    arrays by name.

    order: indices that sort the recorded predictions by example and position, as the slots of pretrain.py.
    """
    inputs = {name: torch.tensor(value) for name, value in inputs.items()}
    rows, length = inputs["input_ids"].shape
    is_used = inputs["masked_lm_weights"] > 0
    flat = (torch.arange(rows)[:, None] * length + inputs["masked_lm_positions"])[is_used]
    order = flat.argsort(stable=True)
    times_drawn = flat.bincount(minlength=rows * length).view(rows, length)
    labels = inputs["input_ids"].long().masked_fill(times_drawn == 0, -100)
    first_length = ((inputs["segment_ids"] == 0) & (inputs["input_mask"] == 1)).sum(1)
    return (
        (inputs["masked_input_ids"].long(), first_length, times_drawn, labels),
        inputs["sampled_ids"][is_used].long()[order],
        order,
    )
