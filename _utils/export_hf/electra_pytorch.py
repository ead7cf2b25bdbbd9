"""Reading the checkpoints of electra_pytorch, which contain weights but neither sizes nor a vocabulary."""
from _utils.errors import PlainError
from _utils.networks.build import PARTS
from _utils.networks.loading import with_prefix
from _utils.pretraining_data.vocabulary import from_vocab_file
from _utils.recipes import config_from_shapes


def find_weights(checkpoint):
    """The weights in a checkpoint of electra_pytorch, saved with or without the optimizer; None for other checkpoints."""
    if not isinstance(checkpoint, dict) or "tokenizer" in checkpoint:
        return None
    weights = checkpoint.get("model", checkpoint)
    is_electra = isinstance(weights, dict) and any(str(name).startswith("generator.electra.") for name in weights)
    return weights if is_electra else None


def as_pretraining_checkpoint(weights, path, vocab):
    """The checkpoint that pretrain.py would have written for these weights. vocab: the path of the vocab.txt.

    Their names are those of transformers 3.3.1: the current ones, and a buffer `position_ids` that is no longer saved.
    """
    if vocab is None:
        raise PlainError(f"{str(path)!r} is a checkpoint of electra_pytorch, which contains no vocabulary. Pass --vocab PATH/vocab.txt; "
                         "the default of electra_pytorch is that of google/electra-small-discriminator.")
    hf_tokenizer = from_vocab_file(vocab)
    weights = {name: value for name, value in weights.items() if not name.endswith("embeddings.position_ids")}
    configs = {f"{part}_config": _config_of(weights, part, path) for part in PARTS}
    vocab_size = configs["discriminator_config"]["vocab_size"]
    if len(hf_tokenizer) != vocab_size:
        raise PlainError(f"The vocabulary {vocab} has {len(hf_tokenizer)} tokens, but {str(path)!r} was trained with {vocab_size}. Pass "
                         "the vocabulary of that training.")
    return {"model": weights, **configs, "tokenizer": hf_tokenizer.backend_tokenizer.to_str(), "config": {
        "made by": "electra_pytorch", "layer_norm_eps": "1e-12; in training 1e-5 in the generator's head (transformers 3.3.1)"}}


def _config_of(weights, part, path):
    shapes = {name: value.shape for name, value in with_prefix(weights, f"{part}.").items()}
    try:
        return config_from_shapes(shapes.get).to_dict()
    except KeyError as error:
        raise PlainError(f"{str(path)!r} lacks {part}.{error.args[0]}, which every checkpoint of electra_pytorch has. Use another "
                         "checkpoint.") from None
