"""The tokenizer of an exported finetuned model, with which transformers reads texts as finetuning did."""
import json

from _utils.text.special_tokens import text_tokenizer
from _utils.text.vocabulary import tokenizer_from_json


def exported_tokenizer(hf_tokenizer, max_length):
    """A tokenizer for transformers that truncates at max_length tokens and reads "[SEP]" in a text as plain text (F1).

    The same holds for other special tokens. Tokens that a user added, such as <e1>, are tokens in texts, as for
    `text_tokenizer`. They are no longer special, because transformers would split them as it does [SEP].
    """
    return _with_settings(text_tokenizer(hf_tokenizer).to_str(), hf_tokenizer, max_length)


def exported_tokenizer_of_words(hf_tokenizer, max_length, words=None):
    """As `exported_tokenizer`, for models that label words: each word is tokenized as if it followed a space.

    Not if a user added tokens, because what follows these inside a word would also get a space.
    words: a PreTokenizer of the library tokenizers that divides texts into words; None: the tokenizer's own does.
    """
    content = json.loads(text_tokenizer(hf_tokenizer).to_str())
    own, parts = _parts(content["pre_tokenizer"]), _parts(json.loads(words.__getstate__())) if words else []
    has_added_tokens = not all(token["special"] for token in content["added_tokens"])
    parts = [*parts, *(own if has_added_tokens else [*map(_after_space, own[:1]), *own[1:]])]
    if parts != own:
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": parts}
    return _with_settings(json.dumps(content), hf_tokenizer, max_length)


def _parts(pre_tokenizer):
    """The steps of a pre-tokenizer of a tokenizer.json; [] for None."""
    return pre_tokenizer.get("pretokenizers", [pre_tokenizer]) if pre_tokenizer else []


def _after_space(part):
    """A step of a pre-tokenizer that reads a text as if it followed a space; only these two kinds mark spaces."""
    settings = {"ByteLevel": {"add_prefix_space": True}, "Metaspace": {"prepend_scheme": "always"}}
    return part | settings.get(part["type"], {})


def _with_settings(content, hf_tokenizer, max_length):
    """A tokenizer for transformers of the text of a tokenizer.json, with the roles of another's special tokens.

    Their names are those of `text_tokenizer`.
    """
    name_of, id_of = text_tokenizer(hf_tokenizer).id_to_token, hf_tokenizer.convert_tokens_to_ids
    roles = {role: name_of(id_of(token)) for role, token in hf_tokenizer.special_tokens_map.items()}
    exported = tokenizer_from_json(content, roles)
    exported.model_max_length = max_length
    # of which transformers saves the one in init_kwargs
    exported.split_special_tokens = exported.init_kwargs["split_special_tokens"] = True
    return exported
