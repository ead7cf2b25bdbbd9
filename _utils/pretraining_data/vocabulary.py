"""The WordPiece vocabulary: from the hub, a vocab.txt, a tokenizer's folder or a checkpoint, or trained on the text itself."""
import os
from collections import Counter
from pathlib import Path

import pyarrow.compute
import tokenizers
import xxhash
from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerFast

from _utils.errors import PlainError, first_line
from _utils.pretraining_data.sources import PIECE, cut_text
from _utils.run_files.checkpoints import find_checkpoint, load_pretraining_checkpoint, write_atomically

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ROLES = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL_TOKENS))
# A vocabulary is trained on at most this many characters, taken evenly from the whole text: more does not change it much.
TRAINING_CHARACTERS = 100_000_000
_TRAINING_VERSION = 1  # raise it whenever the same text would give other words


def load_tokenizer(vocab, corpora=(), cache_dir="datasets"):
    """The tokenizer that `vocab` means: a path (vocab.txt, folder, or one of a pair), a checkpoint, a number of words to train on
    `corpora`, or a hub id.

    Raises PlainError for a file that is no vocabulary, one without a special token, or a hub that cannot be reached.
    """
    if isinstance(vocab, int):
        tokenizer = from_vocab_file(_trained_vocab_file(vocab, corpora, Path(cache_dir)))
    elif vocab.endswith(".pth"):
        tokenizer = tokenizer_from_json(load_pretraining_checkpoint(find_checkpoint(vocab))["tokenizer"])
    elif os.path.isfile(vocab):
        tokenizer = from_vocab_file(vocab)
    else:
        part = os.path.join(vocab, "discriminator")
        tokenizer = _from_pretrained(part if os.path.isdir(part) else vocab)
    _check_special_tokens(tokenizer.get_vocab(), vocab)
    return tokenizer


def _check_special_tokens(words, name):
    missing = [token for token in SPECIAL_TOKENS if token not in words]
    if missing:
        raise PlainError(f"the vocabulary {name} lacks {', '.join(missing)}: ELECTRA needs {' '.join(SPECIAL_TOKENS)}, "
                         "so add a line for each, or train one with vocab=30522.")


def from_vocab_file(path):
    """A BERT tokenizer of a vocab.txt, one word a line; it lower-cases unless the vocabulary has capital letters."""
    try:
        words = Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")  # splitlines would cut at U+2028 too
    except OSError as error:
        raise PlainError(f"the vocabulary {path} cannot be read ({error.strerror}): give a vocab.txt with one word a line.") from None
    except UnicodeDecodeError as error:
        raise PlainError(f"the vocabulary {path} is not UTF-8 text (byte {error.start}): "
                         "give a vocab.txt with one word a line.") from None
    return tokenizer_of_words(words, path)


def tokenizer_of_words(words, name="vocabulary"):
    """A BERT tokenizer whose ids are the positions in `words`. PlainError for repeated or missing words."""
    ids = {word: i for i, word in enumerate(words)}
    if len(ids) < len(words):
        twice = next(word for i, word in enumerate(words) if ids[word] != i)
        raise PlainError(f"the vocabulary {name} has the line {twice!r} twice: every word may stand in it only once.")
    _check_special_tokens(ids, name)
    cased = any(word != word.lower() for word in words if word not in SPECIAL_TOKENS)
    return BertTokenizer(vocab=ids, do_lower_case=not cased)


def tokenizer_from_json(text, pad_token="[PAD]"):
    """The tokenizer in a checkpoint: what tokenizers.Tokenizer.to_str wrote, with its padding token and those of SPECIAL_TOKENS it has.

    A BertTokenizer where it is one, which programs know that do not know a tokenizers.Tokenizer.
    """
    try:
        backend = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library has one kind for all
        raise PlainError(f"the tokenizer in the checkpoint cannot be read ({first_line(error)}): use another checkpoint.") from None
    words = backend.get_vocab()
    if set(SPECIAL_TOKENS) <= set(words):
        bert = tokenizer_of_words(sorted(words, key=words.get))
        if bert.backend_tokenizer.to_str() == backend.to_str():
            return bert
    roles = {role: token for role, token in _ROLES.items() if backend.token_to_id(token) is not None}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **{**roles, "pad_token": pad_token})


def check_has_tokenizer(name):
    """PlainError for a folder without one, of which transformers makes a tokenizer that knows no words."""
    files = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
    if os.path.isdir(name) and not any(os.path.isfile(os.path.join(name, file)) for file in files):
        raise PlainError(f"the folder {name!r} has no tokenizer: save the one that its model was trained with in it, or make the folder "
                         "again with --vocab PATH/vocab.txt if _utils.convert_tf.converter made it.")


def _from_pretrained(name):
    check_has_tokenizer(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # a dozen kinds, from the hub and from the files; the way out is the same
        place = "folder" if os.path.isdir(name) else "hub"
        raise PlainError(f"the tokenizer {name!r} could not be loaded from the {place} ({first_line(error)}); give vocab=PATH/vocab.txt, "
                         "train one with vocab=30522, or try without a download: python pretrain.py quickstart=True") from error
    if not tokenizer.is_fast:
        raise PlainError(f"the tokenizer {name!r} has no fast version: choose a WordPiece tokenizer such as "
                         "google-bert/bert-base-uncased.")
    return tokenizer


def _trained_vocab_file(size, corpora, cache_dir):
    """Path of a vocabulary of `size` words trained on the corpora, from the cache if it was trained before."""
    key = xxhash.xxh3_128(repr((_TRAINING_VERSION, [corpus.key for corpus in corpora])).encode()).hexdigest()
    target = cache_dir / f"vocab_{size}_{key}.txt"
    if not target.exists():
        print(f"Training a vocabulary of {size:,} words on {', '.join(corpus.name for corpus in corpora)}")
        words = train_words(size, lambda: _sample(corpora))
        if len(words) < size:
            print(f"The text has only {len(words):,} words and parts of words that come twice")
        cache_dir.mkdir(parents=True, exist_ok=True)
        write_atomically(target, lambda file: file.write(("\n".join(words) + "\n").encode()))
    return target


def train_words(size, texts):
    """A WordPiece vocabulary of `size` words for the texts that `texts()` yields; the same texts give the same words.

    The library's trainer numbers the continuations (##a) in random order and breaks ties by number; so they are given to it
    in a fixed order, as if they were special tokens.
    """
    trained = tokenizers.BertWordPieceTokenizer(lowercase=True)
    counts = Counter()
    for text in texts():
        counts.update(trained.normalizer.normalize_str(text))
    rare = max(2, sum(counts.values()) // 1_000_000)
    common = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:size // 4]
    alphabet = sorted(char for char, count in common if count >= rare and not char.isspace())
    # Punctuation and ideographs always stand alone, so they need no continuation.
    continuations = ["##" + char for char in alphabet if char.isalnum() and not "\u2e80" <= char <= "\ud7ff"]
    trained.train_from_iterator(texts(), vocab_size=size, min_frequency=2, initial_alphabet=alphabet, limit_alphabet=len(alphabet),
                                special_tokens=[*SPECIAL_TOKENS, *continuations], show_progress=False)
    return [*SPECIAL_TOKENS, *sorted(set(trained.get_vocab()) - set(SPECIAL_TOKENS))]


def _sample(corpora):
    """Texts for the training of a vocabulary, in parts of bounded length: all rows, or every k-th, up to TRAINING_CHARACTERS."""
    for corpus in corpora:
        rows, n = corpus.documents.with_format("arrow"), len(corpus.documents)
        expected = pyarrow.compute.mean(pyarrow.compute.utf8_length(rows[:1000]["text"])).as_py() * n
        step = max(1, round(expected * len(corpora) / TRAINING_CHARACTERS))
        for start in range(0, n, 1000 * step):
            for text in rows[range(start, min(n, start + 1000 * step), step)]["text"]:
                yield from cut_text(text.as_py(), PIECE)
