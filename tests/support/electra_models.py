"""ELECTRAModels with the shapes of a recipe, and their parameters by Google's names."""
from _utils.commands.convert_tf import google_name
from _utils.networks.build import PARTS, build_network
from _utils.recipes import RECIPES
from pretrain import ELECTRAModel


class Vocabulary:
    """The attributes of a tokenizer that ELECTRAModel uses."""
    pad_token_id = 0


def build(size, vocab_size=30522, **kwargs):
    """The ELECTRAModel of a recipe, with fresh weights."""
    return ELECTRAModel(*(build_network(part, getattr(RECIPES[size], part).config(vocab_size)) for part in PARTS), Vocabulary(), **kwargs)


def by_google_name(model, variables=("generator/encoder/",)):
    """{Google's name: parameter} of both networks. variables: names in Google's checkpoint."""
    return {google_name(name, part, variables): parameter
            for part, network in model.named_children() for name, parameter in network.named_parameters()}
