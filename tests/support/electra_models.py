"""ELECTRAs for tests, of a recipe with a vocabulary of any size; and their parameters by Google's names."""
from _utils.convert_tf.converter import Names
from _utils.networks.build import PARTS, build_network
from _utils.recipes import RECIPES
from pretrain import ELECTRAModel


class Vocabulary:
    """All that ELECTRAModel asks of a tokenizer."""
    pad_token_id = 0


def build(size, vocab_size=30522, **kwargs):
    """ELECTRAModel of a recipe with a vocabulary of that many words."""
    return ELECTRAModel(*(build_network(part, getattr(RECIPES[size], part).config(vocab_size)) for part in PARTS), Vocabulary(), **kwargs)


def by_google_name(model):
    """{Google's name: our parameter} of both networks."""
    return {Names(part, ["generator/"]).google(name): parameter
            for part, network in model.named_children() for name, parameter in network.named_parameters()}
