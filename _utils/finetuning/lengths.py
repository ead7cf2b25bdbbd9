"""The maximum length of rows: its default for a pretrained model, and advice about other lengths."""
from _utils.networks.build import has_learned_positions
from _utils.recipes import RECIPES


def default_length(pretrained):
    """Maximum tokens of a row for a Pretrained.

    Of a checkpoint of pretrain.py, as many as in pretraining. Rotary positions, which have no embeddings to train, also
    work for longer texts: then at least as many as in the recipe. Of others, all positions, but at most 512.
    """
    if not pretrained.run:
        return min(512, pretrained.length)
    if has_learned_positions(pretrained.model):
        return pretrained.length
    return max(RECIPES[pretrained.size].glue_length, pretrained.run["max_length"])


def length_warnings(config, pretrained):
    """[A warning] if the maximum length is more than the positions that were trained, or []."""
    if config.max_length <= pretrained.length or not has_learned_positions(pretrained.model):
        return []
    texts = "pretrained on" if pretrained.run else "saved with a tokenizer for"
    return [f"warning: max_length={config.max_length}, but {pretrained.name!r} was {texts} texts of at most "
            f"{pretrained.length} tokens, so the embeddings of later positions were not trained. Set "
            f"max_length={pretrained.length}, for longer texts with window_stride={pretrained.length // 2}."]


def advice_about_length(settings, longest, has_windows):
    """What to do about texts that are too long. settings: of a run.   longest: tokens that the model allows.
    has_windows: whether window_stride applies to the task.
    """
    limit = f" (at most {longest})" if longest < 1 << 30 else ""  # some networks have no limit
    keys = [f"max_length{limit}"] if settings.max_length < longest else []
    keys += ["window_stride"] if has_windows else []
    return f"Set {' or '.join(keys)}, or shorten the texts." if keys else "Shorten the texts."
