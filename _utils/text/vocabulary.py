"""Load or train a WordPiece vocabulary, and a cache of words for BERT's tokenizers."""
import json
import os
import re
import unicodedata
from array import array
from collections import Counter
from functools import lru_cache
from pathlib import Path

import pyarrow.compute
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers
from tqdm import tqdm
from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerFast

from _utils.errors import PlainError, as_plain_error
from _utils.runs.checkpoints import find_checkpoint, load_pretraining_checkpoint, write_text_atomically
from _utils.runs.files import content_key
from _utils.text.readers import cut_text

_ENTRIES = 1 << 18  # 70 MB
_LONGEST = 64       # characters; longer words rarely repeat
_PIECES = re.compile(r"[!-/:-@\[-`{-~]|[^!-/:-@\[-`{-~]+")  # an ASCII punctuation character, or text without one


class WordCache:
    """The token ids of lines, from those of their words, which are computed once. A pickled cache is empty.

    tokenizer: a tokenizers.Tokenizer that `is_cacheable`, with encode_special_tokens=True.   typecode: of the ids, as in `array`.
    """

    def __init__(self, tokenizer, typecode):
        self.tokenizer, self.typecode, self.cached = tokenizer, typecode, lru_cache(_ENTRIES)(self._compute)
        self.model, self.lowercase = tokenizer.model, tokenizer.normalizer.lowercase

    def __reduce__(self):
        return WordCache, (self.tokenizer, self.typecode)

    def encode(self, line):
        """Return the token ids of a line as an array, without special tokens."""
        return array(self.typecode, self._encode(line.split(" ")))

    def _encode(self, words):
        """Return the bytes of the ids of words, or of pieces of one. None are cached beside a long one."""
        return b"".join(map(self.cached if max(map(len, words)) <= _LONGEST else self._compute, words))

    def _compute(self, word):
        if word.isascii() and word.isalnum():
            ids = [token.id for token in self.model.tokenize(word.lower() if self.lowercase else word)]
        elif len(pieces := _PIECES.findall(word)) > 1:
            return self._encode(pieces)
        else:
            [encoding] = self.tokenizer.encode_batch_fast([word], add_special_tokens=False)
            ids = encoding.ids
        return array(self.typecode, ids).tobytes()


def is_cacheable(tokenizer):
    """Whether a tokenizers.Tokenizer is one of BERT's, with any settings of its normalizer and no added tokens that are not special."""
    kinds = normalizers.BertNormalizer, pre_tokenizers.BertPreTokenizer, models.WordPiece
    modules = tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.model
    return all(map(isinstance, modules, kinds)) and all(token.special for token in tokenizer.get_added_tokens_decoder().values())


SPECIAL_TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK]".split()
TRAINING_CHARACTERS = 100_000_000  # a vocabulary is trained on an even sample of the text; more changes it little
_TRAINING_VERSION = 1  # increase when the same text would give other tokens


def load_tokenizer(vocab, corpora=(), cache_dir="datasets", cased=False):
    """Return the tokenizer for `vocab`: a path (vocab.txt, folder, or folder of a generator-discriminator pair), a checkpoint (.pth),
    a vocabulary size to train on `corpora`, or a hub id.

    cased: whether a vocabulary that is trained keeps case and accents.
    Raises PlainError for an invalid vocabulary, a missing special token, or an unreachable hub.
    """
    if isinstance(vocab, int):
        tokenizer = from_vocab_file(_trained_vocab_file(vocab, corpora, Path(cache_dir), cased), cased)
    elif vocab.endswith(".pth"):
        tokenizer = tokenizer_from_json(load_pretraining_checkpoint(find_checkpoint(vocab))["tokenizer"])
    elif os.path.isfile(vocab) or vocab.endswith(".txt"):
        tokenizer = from_vocab_file(vocab)
    else:
        part = os.path.join(vocab, "discriminator")
        tokenizer = pretrained_tokenizer(part if os.path.isdir(part) else vocab, "Set vocab=PATH/vocab.txt, train a vocabulary with "
                                         "vocab=30522, or run without a download: python pretrain.py quickstart=True")
    _check_special_tokens(tokenizer.get_vocab(), vocab)
    return tokenizer


def _check_special_tokens(tokens, name):
    if missing := [token for token in SPECIAL_TOKENS if token not in tokens]:
        raise PlainError(f"The vocabulary {name} lacks {', '.join(missing)}. ELECTRA needs {' '.join(SPECIAL_TOKENS)}: "
                         "add a line for each, or train a vocabulary with vocab=30522.")


def from_vocab_file(path, cased=None):
    """Return a BERT tokenizer for a vocab.txt with one token per line. cased: as in `tokenizer_from_tokens`."""
    with as_plain_error(f"The vocabulary {path} cannot be read ({{error}}). Pass a vocab.txt with one token per line in UTF-8.",
                        (OSError, UnicodeDecodeError)):
        tokens = Path(path).read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")  # splitlines would also split at U+2028
    return tokenizer_from_tokens(tokens, path, cased)


def tokenizer_from_tokens(tokens, name="vocabulary", cased=None):
    """Return a BERT tokenizer whose ids are the positions in `tokens`. Raises PlainError for duplicate or missing tokens.

    cased: whether it keeps case and accents; None: if the vocabulary has capital letters.
    """
    ids = {token: i for i, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        [(duplicate, _)] = Counter(tokens).most_common(1)
        raise PlainError(f"The vocabulary {name} has the line {duplicate!r} twice. Remove duplicate tokens.")
    _check_special_tokens(ids, name)
    if cased is None:
        cased = any(token != token.lower() for token in tokens if token[:1] != "[")  # not [CLS] or [NUM]
    return BertTokenizer(vocab=ids, do_lower_case=not cased)


def tokenizer_from_json(text, pad_token="[PAD]"):
    """Return the tokenizer in a checkpoint. text: from tokenizers.Tokenizer.to_str.

    It has the padding token and those of SPECIAL_TOKENS that are in the vocabulary. If possible it is a BertTokenizer, which programs
    without support for tokenizers.Tokenizer can load too.
    """
    with as_plain_error("The tokenizer in the checkpoint cannot be read ({error}). Use another checkpoint."):
        backend = tokenizers.Tokenizer.from_str(text)
    vocab = backend.get_vocab()
    if set(SPECIAL_TOKENS) <= set(vocab):
        bert = tokenizer_from_tokens(sorted(vocab, key=vocab.get), cased=not getattr(backend.normalizer, "lowercase", True))
        if bert.backend_tokenizer.to_str() == backend.to_str():
            return bert
    model = json.loads(text)["model"]
    unknown = model["vocab"][model["unk_id"]][0] if model.get("unk_id") is not None else model.get("unk_token")
    roles = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS if token in vocab}  # [PAD] is the pad_token
    return PreTrainedTokenizerFast(tokenizer_object=backend, **{**roles, "unk_token": unknown, "pad_token": pad_token})


def pretrained_tokenizer(name, advice):
    """The fast tokenizer in a folder or on the hub, of any family. advice: the end of the message of a PlainError."""
    with as_plain_error(f"The tokenizer {name!r} could not be loaded ({{error}}). {advice}"):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    if len(tokenizer) <= len(SPECIAL_TOKENS):  # transformers builds one for a folder that has none
        raise PlainError(f"The folder {name!r} has no tokenizer. Save the tokenizer of its model there. If convert_tf wrote the "
                         "folder, rerun it with --vocab PATH/vocab.txt.")
    if not tokenizer.is_fast or tokenizer.pad_token is None:
        raise PlainError(f"The tokenizer {name!r} has no fast version or no padding token. {advice}")
    tokenizer.backend_tokenizer.no_padding()  # both settings can be part of a saved tokenizer
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def _trained_vocab_file(size, corpora, cache_dir, cased):
    """Return the path of a vocab.txt trained on the corpora, from the cache if possible."""
    key = content_key((_TRAINING_VERSION, [corpus.key for corpus in corpora]))
    path = cache_dir / f"vocab_{size}_{'cased_' * cased}{key}.txt"
    if not path.exists():
        tokens = train_vocabulary(size, lambda: tqdm(_sample(corpora), f"Training a vocabulary of {size:,} tokens", leave=False), cased)
        if len(tokens) < size:
            print(f"The vocabulary has {len(tokens):,} tokens instead of the requested {size:,}, because the text is too small")
        write_text_atomically(path, "\n".join(tokens) + "\n")
    return path


def train_vocabulary(size, texts, cased=False):
    """Return the tokens of a WordPiece vocabulary trained on the texts that `texts()` yields; the same texts give the same tokens.

    cased: keep case, accents, and the combining marks of other scripts.
    The trainer of `tokenizers` numbers the continuations (##a) in random order and breaks ties by number. To make it deterministic
    they are passed in a fixed order as special tokens.
    """
    tokenizer = tokenizers.BertWordPieceTokenizer(lowercase=not cased)
    counts = Counter()
    for text in texts():
        counts.update(tokenizer.normalizer.normalize_str(text))
    min_count = max(2, sum(counts.values()) // 1_000_000)
    most_common = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:size // 4]
    alphabet = sorted(char for char, count in most_common if count >= min_count and not char.isspace())
    # Punctuation and ideographs are always tokens by themselves and need no continuation.
    continuations = ["##" + char for char in alphabet if not "\u2e80" <= char <= "\ud7ff"
                     and (char.isalnum() or cased and unicodedata.category(char).startswith("M"))]
    tokenizer.train_from_iterator(texts(), vocab_size=size, min_frequency=2, initial_alphabet=alphabet, limit_alphabet=len(alphabet),
                                  special_tokens=[*SPECIAL_TOKENS, *continuations], show_progress=False)
    return [*SPECIAL_TOKENS, *sorted(set(tokenizer.get_vocab()) - set(SPECIAL_TOKENS))]


def _sample(corpora):
    """Yield texts of bounded length: all rows of the corpora, or every k-th so that they have about TRAINING_CHARACTERS."""
    for corpus in corpora:
        rows, n = corpus.documents.with_format("arrow"), len(corpus.documents)
        n_characters = pyarrow.compute.mean(pyarrow.compute.utf8_length(rows[:1000]["text"])).as_py() * n
        step = max(1, round(n_characters * len(corpora) / TRAINING_CHARACTERS))
        for batch in rows.select(range(0, n, step)).iter(1000):
            for text in batch["text"]:
                yield from cut_text(text.as_py())
