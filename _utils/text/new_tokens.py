"""New tokens for the vocabulary of trained networks: the words of a domain, for continued pretraining."""
import json

from tokenizers import models

from _utils.errors import UserError
from _utils.runs.checkpoints import tokenizer_record
from _utils.text.special_tokens import text_tokenizer
from _utils.text.vocabulary import is_vocab_file, load_tokenizer, read_vocab_file, tokenizer_from_json


def extend_tokenizer(hf_tokenizer, vocab):
    """Return the tokenizer of trained networks with more tokens, whose ids follow the present ones.

    vocab: a vocab.txt, of which the tokens that are missing are added; or a tokenizer, as in `load_tokenizer`, that has
    the present tokens and more.
    Raises UserError for a tokenizer with other tokens, and for words to be added to another model than WordPiece.
    """
    if not is_vocab_file(vocab):
        return _with_the_same_tokens(hf_tokenizer, load_tokenizer(vocab), vocab)
    if not isinstance(hf_tokenizer.backend_tokenizer.model, models.WordPiece):
        raise UserError(f"vocab={vocab!r} adds words, which only WordPiece vocabularies support. Add them to the "
                        "tokenizer with the method add_tokens of transformers, save it, and set vocab to its folder.")
    return _with_tokens(hf_tokenizer, _missing_tokens(hf_tokenizer, vocab))


def _with_the_same_tokens(hf_tokenizer, extended, name):
    """The tokenizer `extended`; UserError unless it has all tokens of hf_tokenizer, with the same ids."""
    ids = extended.get_vocab()
    for token, i in hf_tokenizer.get_vocab().items():
        if ids.get(token) != i:
            raise UserError(f"vocab={name!r} is not the vocabulary of initial_weights with more tokens: the id of "
                            f"{token!r} is {ids.get(token)} instead of {i}. Leave out vocab, or set it to a vocab.txt "
                            "with the words to add.")
    return extended


def _missing_tokens(hf_tokenizer, path):
    """The tokens of a vocab.txt that the tokenizer lacks, as it writes them. Prints them, and those that it splits."""
    present = hf_tokenizer.get_vocab()
    tokens = (token for token in read_vocab_file(path) if token.strip() and token not in present)
    words = {token: _words_of(hf_tokenizer, token) for token in tokens}
    whole = dict.fromkeys(parts[0] for parts in words.values() if len(parts) == 1)
    missing = [token for token in whole if token not in present]
    if split := [token for token, parts in words.items() if len(parts) > 1]:
        print(f"Skipping {len(split):,} of {len(words):,} new tokens of {path}, because the tokenizer splits them "
              f"before it looks up tokens: {', '.join(split[:5])}")
    shown = missing[:5] + ["..."] * (len(missing) > 5)
    print(f"Adding {len(missing):,} tokens of {path} to the vocabulary: {', '.join(shown)}")
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
