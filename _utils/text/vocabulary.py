"""Load or train a WordPiece vocabulary, and a cache of words for BERT's tokenizers."""
import os
import re
import unicodedata
from array import array
from collections import Counter
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pyarrow.compute
import tokenizers
import transformers
from tokenizers import models, normalizers, pre_tokenizers
from tokenizers.normalizers import NFC, Sequence
from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerBase

from _utils.errors import UserError, as_user_error
from _utils.files import content_key, write_text_atomically
from _utils.names import PROSE, find_checkpoint, is_vocab_file
from _utils.progress import Progress
from _utils.runs.checkpoints import load_pretraining_checkpoint
from _utils.text.normalization import warn_of_losses
from _utils.text.readers import cut_text
from _utils.text.special_tokens import (
    SPECIAL_TOKENS,
    check_special_tokens,
    complete_special_tokens,
    roles_in,
)

_ENTRIES = 1 << 18  # 70 MB
_LONGEST = 64       # characters; longer words rarely repeat
_PIECES = re.compile(r"[!-/:-@\[-`{-~]|[^!-/:-@\[-`{-~]+")  # an ASCII punctuation character, or text without one


class PreTrainedTokenizerFast(transformers.PreTrainedTokenizerFast):
    """A tokenizer as its file describes it. It is saved under this name, which older versions of transformers know."""


class WordCache:
    """The token ids of lines, from those of their words, which are computed once. A pickled cache is empty.

    tokenizer: a tokenizers.Tokenizer that `is_cacheable`, with encode_special_tokens=True.   typecode: of the ids, as
    in `array`.
    """

    def __init__(self, tokenizer, typecode):
        self.tokenizer, self.typecode, self.cached = tokenizer, typecode, lru_cache(_ENTRIES)(self._compute)
        self.model, normalizer = tokenizer.model, tokenizer.normalizer
        self.lowercase, self.composes = _bert_normalizer(normalizer).lowercase, isinstance(normalizer, Sequence)

    def __reduce__(self):
        return WordCache, (self.tokenizer, self.typecode)

    def encode(self, line):
        """Return the token ids of a line as an array, without special tokens."""
        if self.composes:  # here, because marks also compose with the spaces and punctuation at which it is split
            line = unicodedata.normalize("NFC", line)
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
    """Whether a tokenizers.Tokenizer is one of BERT's and all its added tokens are special.

    Its normalizer may have any settings, and may follow NFC.
    """
    kinds = normalizers.BertNormalizer, pre_tokenizers.BertPreTokenizer, models.WordPiece
    modules = _bert_normalizer(tokenizer.normalizer), tokenizer.pre_tokenizer, tokenizer.model
    return all(map(isinstance, modules, kinds)) and all(
        token.special for token in tokenizer.get_added_tokens_decoder().values()
    )


def _bert_normalizer(normalizer):
    """The second one of NFC and another normalizer; any other normalizer itself."""
    follows_nfc = isinstance(normalizer, Sequence) and len(normalizer) == 2 and isinstance(normalizer[0], NFC)
    return normalizer[1] if follows_nfc else normalizer


TRAINING_CHARACTERS = 100_000_000  # a vocabulary is trained on an even sample of the text; more changes it little
_TRAINING_VERSION = 2  # increase when the same text would give other tokens
# As BERT's uncased tokenizer strips accents: decomposed, without nonspacing marks (F1).
_ACCENTS_REMOVER = normalizers.BertNormalizer(
    clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
_EXCERPT = 300, 1000   # documents of a corpus, evenly spaced, and characters of each, that are checked before training


def load_tokenizer(vocab, corpora=(), cache_dir="datasets", cased=None, strip_accents=None):
    """Return the tokenizer of a path, a checkpoint (.pth), a vocabulary size, `prose` or a hub id.

    vocab: a path is a vocab.txt, a tokenizer.json, a folder, or a folder of a generator and a discriminator.
    A vocabulary of a given size is trained on `corpora`; `prose` is that of the corpus of this name.
    cased, strip_accents: of a vocab.txt as in `from_vocab_file`; of a vocabulary that is trained as in
    `train_vocabulary`. They are part of other tokenizers.
    Raises UserError for an invalid vocabulary, a missing special token, or an unreachable hub.
    """
    if isinstance(vocab, int):
        return _trained_tokenizer(vocab, corpora, Path(cache_dir), cased, strip_accents)
    if vocab == "prose" or is_vocab_file(vocab):
        return from_vocab_file(PROSE / "vocab.txt" if vocab == "prose" else vocab, cased, strip_accents)
    if vocab.endswith(".pth"):
        tokenizer = tokenizer_of(load_pretraining_checkpoint(find_checkpoint(vocab)))
    elif vocab.endswith(".json"):
        tokenizer = _from_tokenizer_file(vocab)
    else:
        parts = [os.path.join(vocab, part) for part in ("discriminator", "generator")]
        tokenizer = pretrained_tokenizer(next(filter(os.path.isdir, parts), vocab), _ADVICE)
    is_bpe = isinstance(tokenizer.backend_tokenizer.model, models.BPE)
    not_needed = {"unk_token": None} if is_bpe else {}  # a vocabulary of bytes knows all words
    advice = "add the tokens, or name their roles in a tokenizer_config.json beside it"
    check_special_tokens(not_needed | tokenizer.special_tokens_map, vocab, advice)
    if (largest := max(tokenizer.get_vocab().values())) >= len(tokenizer):
        raise UserError(f"The vocabulary {vocab} has {len(tokenizer):,} tokens, but ids up to {largest:,}. Number its "
                        "tokens from 0 without gaps.")
    return tokenizer


_ADVICE = ("Set vocab=PATH/vocab.txt, train a vocabulary with vocab=30522, or run without a download: python "
           "pretrain.py quickstart=True")


def from_vocab_file(
    path: str | Path, cased: bool | None = None, strip_accents: bool | None = None
) -> PreTrainedTokenizerBase:
    """Return a BERT tokenizer for a vocab.txt with one token per line.

    cased: whether it keeps case.   strip_accents: whether it removes accents and other combining marks.
    None: as the tokens show. A vocabulary that was trained without capital letters or accents has no such tokens. A few
    words with them may have been added to it later, which does not change what it is.
    """
    tokens = read_vocab_file(path)
    if cased is None:
        cased = _have([token for token in tokens if not token.startswith(("[", "<"))], str.lower)  # not [CLS] or <e1>
    if strip_accents is None and not cased and _have(tokens, _ACCENTS_REMOVER.normalize_str):
        strip_accents = False
    return tokenizer_from_tokens(tokens, path, cased, strip_accents)


def read_vocab_file(path):
    """Return the lines of a vocab.txt."""
    advice = "Pass a vocab.txt with one token per line in UTF-8."
    with as_user_error(f"The vocabulary {path} cannot be read ({{error}}). {advice}", (OSError, UnicodeDecodeError)):
        content = Path(path).read_bytes()
        _check_for_sentencepiece(path, content)
        text = content.decode("utf-8-sig")
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")  # splitlines would also split at U+2028


def _check_for_sentencepiece(path, content):
    """Raise UserError, with how to convert it, for the content of a model of SentencePiece or of its list of pieces."""
    is_model = b"\0" in content and "\u2581".encode() in content  # its mark of a space
    if is_model or content.startswith(b"<unk>\t0\n"):
        what = "is a SentencePiece model" if is_model else "lists the pieces of a SentencePiece model"
        # older versions of transformers convert such a model to another one
        raise UserError(f"{path} {what}. Convert the model to a tokenizer: run pip install sentencepiece "
                        "'transformers>=5.24', copy it to tokenizer/tokenizer.model, run python -c \"from transformers "
                        "import AutoTokenizer as T; T.from_pretrained('tokenizer', cls_token='<s>', sep_token='</s>', "
                        "pad_token='<pad>', mask_token='<mask>').save_pretrained('tokenizer')\", and set "
                        "vocab=tokenizer.")


def tokenizer_from_tokens(tokens, name="vocabulary", cased=False, strip_accents=None):
    """Return a BERT tokenizer whose ids are the positions in `tokens`.

    cased: keep case.   strip_accents: remove accents and other combining marks; None: unless `cased`.
    If it keeps them, it composes letters and marks (NFC), as most texts do, unless the tokens are decomposed.
    Raises UserError for duplicate or missing tokens.
    """
    ids = {token: i for i, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        [(duplicate, _)] = Counter(tokens).most_common(1)
        raise UserError(f"The vocabulary {name} has the line {duplicate!r} twice. Remove duplicate tokens.")
    roles = roles_in(ids)
    check_special_tokens(roles, name)
    backend = BertTokenizer(vocab=ids, **roles).backend_tokenizer
    composed, decomposed = (sum(map(partial(unicodedata.is_normalized, form), tokens)) for form in ("NFC", "NFD"))
    backend.normalizer = _normalizer(cased, strip_accents, composes=composed >= decomposed)
    return tokenizer_from_json(backend.to_str(), roles)


def _normalizer(cased, strip_accents, composes=True):
    """BERT's normalizer, after NFC if it keeps marks and `composes` is set.

    NFC composes marks with their letters. Some texts do not, such as those of macOS and of PDF files.
    """
    bert = normalizers.BertNormalizer(lowercase=not cased, strip_accents=strip_accents)
    keeps_marks = cased if strip_accents is None else not strip_accents
    return Sequence([NFC(), bert]) if keeps_marks and composes else bert


def _have(tokens, removed):
    """Whether tokens have what a function removes: as single characters, or in more than one token of a hundred."""
    changed = [token for token in tokens if removed(token) != token]
    return len(changed) > .01 * len(tokens) or any(len(token.removeprefix("##")) == 1 for token in changed)


def _from_tokenizer_file(path):
    """Return the tokenizer in a tokenizer.json, with the settings in the tokenizer_config.json next to it, if any."""
    if Path(path).name == "tokenizer.json" and Path(path).with_name("tokenizer_config.json").is_file():
        return pretrained_tokenizer(str(Path(path).parent), _ADVICE)
    with as_user_error(f"The tokenizer {path!r} cannot be read ({{error}}). Pass a tokenizer.json of the library "
                       "tokenizers, a vocab.txt with one token per line, or the folder of a tokenizer."):
        return _completed(PreTrainedTokenizerFast(tokenizer_file=path))


def _completed(hf_tokenizer):
    """The tokenizer of another program with all its special tokens, as `_usable`."""
    complete_special_tokens(hf_tokenizer)
    return _usable(hf_tokenizer)


def _usable(hf_tokenizer):
    """The tokenizer with Google's limit on the characters of a word (F1), without padding and truncation."""
    backend = hf_tokenizer.backend_tokenizer
    if isinstance(backend.model, models.WordPiece):
        backend.model.max_input_chars_per_word = 200  # the default of `tokenizers` is 100
    backend.no_padding()
    backend.no_truncation()
    return hf_tokenizer


def tokenizer_of(checkpoint):
    """Return the tokenizer in a checkpoint of pretrain.py or finetune.py."""
    return tokenizer_from_json(checkpoint["tokenizer"], checkpoint["special_tokens"])


def tokenizer_from_json(text, special_tokens):
    """Return the tokenizer in a checkpoint. text: from tokenizers.Tokenizer.to_str.

    special_tokens: {role: token}, also {"extra_special_tokens": list}.
    """
    with as_user_error("The tokenizer in the checkpoint cannot be read ({error}). Use another checkpoint."):
        backend = tokenizers.Tokenizer.from_str(text)
        inputs = ["input_ids", "token_type_ids", "attention_mask"]
        return _usable(PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=inputs, **special_tokens))


def pretrained_tokenizer(name, advice):
    """The fast tokenizer in a folder or on the hub, of any family. advice: the end of the message of a UserError."""
    if os.path.isdir(name) and not Path(name, "tokenizer_config.json").exists():
        # transformers would choose a class by the model's family, which may ignore what these files say.
        for file, load in (("tokenizer.json", _from_tokenizer_file), ("vocab.txt", from_vocab_file)):
            if Path(name, file).exists():
                return load(os.path.join(name, file))
    with as_user_error(f"The tokenizer {name!r} could not be loaded ({{error}}). {advice}"):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    if len(tokenizer) <= len(SPECIAL_TOKENS):  # transformers builds one for a folder that has none
        raise UserError(f"{name!r} has no tokenizer. Save the tokenizer of its model there. If convert_tf wrote the "
                        "folder, delete it and convert again with --vocab PATH/vocab.txt.")
    if not tokenizer.is_fast:
        raise UserError(f"The tokenizer {name!r} has no fast version. {advice}")
    if _completed(tokenizer).pad_token is None:
        raise UserError(f"The tokenizer {name!r} has no padding token. {advice}")
    return tokenizer


def _trained_tokenizer(size, corpora, cache_dir, cased, strip_accents):
    """Return a BERT tokenizer with a vocabulary trained on the corpora, from the cache if possible."""
    settings = bool(cased), strip_accents
    composes = isinstance(_normalizer(*settings), Sequence)  # since the second version
    key = content_key((_TRAINING_VERSION + composes, [corpus.key for corpus in corpora], *settings))
    path = cache_dir / f"vocab_{size}_{key}.txt"
    if not path.exists():
        if cased is None and strip_accents is None:
            names = ", ".join(corpus.name for corpus in corpora)
            warn_of_losses(names, normalizers.BertNormalizer(), _excerpt(corpora))
        title = f"Training a vocabulary of {size:,} tokens"
        texts = lambda: Progress(_sample_of_text(corpora), title, unit="texts")
        write_text_atomically(path, "".join(f"{token}\n" for token in train_vocabulary(size, texts, *settings)))
    tokens = read_vocab_file(path)
    if len(tokens) < size:
        print(f"The text has only {len(tokens):,} tokens that occur often enough, instead of the requested {size:,}")
    return tokenizer_from_tokens(tokens, path, *settings)


def _excerpt(corpora):
    """Yield the beginnings of documents that are evenly spaced in the first part of each corpus."""
    n, length = _EXCERPT
    for corpus in corpora:
        documents = corpus.first_part()
        rows = np.unique(np.linspace(0, len(documents) - 1, n).astype(int))
        yield from ((text or "")[:length] for text in documents.select(rows)["text"])


def train_vocabulary(size, texts, cased=False, strip_accents=None):
    """Return the tokens of a WordPiece vocabulary trained on the texts that `texts()` yields.

    The same texts give the same tokens.
    cased, strip_accents: as in `tokenizer_from_tokens`.
    The trainer of `tokenizers` numbers the continuations (##a) in random order and breaks ties by number. To make it
    deterministic, they are passed in a fixed order as special tokens.
    """
    tokenizer, counts = tokenizers.BertWordPieceTokenizer(), Counter()
    tokenizer.normalizer = _normalizer(cased, strip_accents)
    keeps_marks = isinstance(tokenizer.normalizer, Sequence)
    for text in texts():
        counts.update(tokenizer.normalizer.normalize_str(text))
    min_count = max(2, sum(counts.values()) // 1_000_000)
    most_common = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:size // 4]
    alphabet = sorted(char for char, count in most_common if count >= min_count and not char.isspace())
    # Punctuation and ideographs, around which the normalizer puts spaces, are tokens by themselves.
    is_alone = lambda char: " " in tokenizer.normalizer.normalize_str(f"a{char}a")
    continuations = ["##" + char for char in alphabet if not is_alone(char)
                     and (char.isalnum() or keeps_marks and unicodedata.category(char).startswith("M"))]
    tokenizer.train_from_iterator(
        texts(),
        vocab_size=size,
        min_frequency=2,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        special_tokens=[*SPECIAL_TOKENS, *continuations],
        show_progress=False,
    )
    return [*SPECIAL_TOKENS, *sorted(set(tokenizer.get_vocab()) - set(SPECIAL_TOKENS))]


def _sample_of_text(corpora):
    """Yield texts of bounded length from the rows of the first part of each corpus.

    Takes all rows, or every k-th so that they have about TRAINING_CHARACTERS.
    """
    for corpus in corpora:
        documents = corpus.first_part()
        rows, n = documents.with_format("arrow"), len(documents)
        n_characters = pyarrow.compute.mean(pyarrow.compute.utf8_length(rows[:1000]["text"])).as_py() * n
        step = max(1, round(n_characters * len(corpora) / TRAINING_CHARACTERS))
        for batch in rows.select(range(0, n, step)).iter(1000):
            for text in batch["text"]:
                yield from cut_text(text.as_py() or "")
