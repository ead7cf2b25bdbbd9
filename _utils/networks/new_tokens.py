"""Rows of new tokens in the embeddings and output layers of trained networks, and networks that lack them."""
import torch

from _utils.errors import UserError, as_user_error
from _utils.text.new_tokens import pieces_of_new_tokens


def add_tokens(networks, old, new):
    """Extend trained networks, in place, from the vocabulary of the tokenizer `old` to that of `new`, which has more.

    The token embedding of a new token, and in a masked language model its output bias, start as the mean of those of
    the pieces into which `old` divides it.
    """
    pieces = pieces_of_new_tokens(old, new)
    for network in networks if pieces else ():
        _extend(network, len(old), pieces)


@torch.no_grad()
def _extend(network, first, pieces):
    """Set the rows of the ids from `first` on to the means of the rows of their pieces, lists of ids."""
    size = first + len(pieces)
    if size > network.get_input_embeddings().num_embeddings:
        family = network.config.model_type
        with as_user_error(f"The vocabulary of a {family} model cannot be extended ({{error}}). Leave out vocab."):
            network.resize_token_embeddings(size, mean_resizing=False)
    output = network.get_output_embeddings()
    tables = [network.get_input_embeddings().weight, *(output.parameters() if output else ())]
    for table in tables:  # tied weights occur twice, which changes nothing
        table[first:size] = torch.stack([table[ids].mean(0) for ids in pieces])


def check_vocabulary(hf_tokenizer, network, name):
    """UserError if a tokenizer has tokens for which the network has no embedding. name: of the model."""
    n = network.get_input_embeddings().num_embeddings
    if max(hf_tokenizer.get_vocab().values()) >= n:
        raise UserError(f"The tokenizer of {name!r} has {len(hf_tokenizer):,} tokens, but the model has embeddings "
                        f"for {n:,}. Call model.resize_token_embeddings(len(tokenizer)) and save the model again, or "
                        "save the tokenizer of its training in its folder.")
