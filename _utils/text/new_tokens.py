"""New tokens for the vocabulary of trained networks: the words of a domain, for continued pretraining."""
import json

from tokenizers import models

from _utils.errors import UserError
from _utils.runs.checkpoints import tokenizer_record
from _utils.text.special_tokens import text_tokenizer
from _utils.text.vocabulary import read_vocab_file, tokenizer_from_json


def extend_tokenizer(hf_tokenizer, path):
    """Return the tokenizer of trained networks with the missing tokens of a vocab.txt, whose ids follow the present
    ones.

    Raises UserError for another model than WordPiece.
    """
    if not isinstance(hf_tokenizer.backend_tokenizer.model, models.WordPiece):
        raise UserError(f"vocab={path!r} adds words, which only WordPiece vocabularies support. Leave out vocab.")
    return _with_tokens(hf_tokenizer, _missing_tokens(hf_tokenizer, path))


def _missing_tokens(hf_tokenizer, path):
    """The tokens of a vocab.txt that the tokenizer lacks, as it writes them. Prints them, and those that it splits."""
    present = hf_tokenizer.get_vocab().keys()
    words = {token: _words_of(hf_tokenizer, token) for token in read_vocab_file(path) if token not in present}
    split = [token for token, parts in words.items() if len(parts) > 1]
    whole = dict.fromkeys(parts[0] for parts in words.values() if len(parts) == 1)
    missing = [token for token in whole if token not in present]
    print(f"Adding {len(missing):,} tokens of {path} to the vocabulary: {', '.join([*missing[:5], '...'])}")
    print(f"Skipping {len(split):,} that the tokenizer splits: {', '.join([*split[:5], '...'])}")
    return missing


def _words_of(hf_tokenizer, text):
    """The words of a text for WordPiece: normalized, and split at spaces and punctuation. A ##continuation is one."""
    tokenizer = hf_tokenizer.backend_tokenizer
    if text.startswith("##"):
        return [text]
    text = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    if tokenizer.pre_tokenizer is None:
        return [text]
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


def _with_tokens(hf_tokenizer, tokens):
    """The tokenizer with these tokens in its WordPiece vocabulary, after all present ones."""
    record, vocab = tokenizer_record(hf_tokenizer), hf_tokenizer.get_vocab()
    content = json.loads(record["tokenizer"])
    # Also with the tokens that were added to the model: their ids would be counted from the end of its vocabulary.
    content["model"]["vocab"] = vocab | {token: len(vocab) + i for i, token in enumerate(tokens)}
    return tokenizer_from_json(json.dumps(content), record["special_tokens"])


def pieces_of_new_tokens(old, new):
    """The ids in the vocabulary of the tokenizer `old` of the pieces of each token that `new` adds, by its id."""
    return [_pieces(old, new, i) for i in range(len(old), len(new))]


def _pieces(old, new, i):
    token, tokenizer = new.convert_ids_to_tokens(i), text_tokenizer(old)
    is_continuation = token.startswith("##") and isinstance(tokenizer.model, models.WordPiece)
    text = token[2:] if is_continuation else new.backend_tokenizer.decode([i], skip_special_tokens=False)
    first, *rest = tokenizer.encode(text, add_special_tokens=False).ids or [old.unk_token_id]
    if is_continuation:  # its first piece continues a word too
        first = old.get_vocab().get(f"##{old.convert_ids_to_tokens(first)}", first)
    return [first, *rest]
