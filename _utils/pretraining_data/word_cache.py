"""Token ids of BERT's tokenizers through a bounded cache of words, with the ids that the `tokenizers` library returns for the whole line.

A line is split at ASCII spaces, and a word that is not in the cache again at ASCII punctuation. This does not change the ids, because no
step of these tokenizers looks across such a character, a space or an ASCII punctuation character `p`:

- added tokens: all are special, and with `encode_special_tokens` the library does not search for them.
- `clean_text`, `handle_chinese_chars` and `lowercase` replace each character by itself; `p` is not a CJK or control character.
- `strip_accents` decomposes each character, reorders combining characters within unbroken runs of them (NFD), and drops nonspacing
  marks. `p` is unchanged and ends such a run. A combining character after `p` stays on its side.
- `BertPreTokenizer` removes whitespace and isolates each punctuation character. So `p` is always a boundary between words.
- WordPiece, with its limit `max_input_chars_per_word`, sees one such word at a time.

Other whitespace would need more care: `clean_text` removes the characters U+001C to U+001F, at which `str.split()` splits.
"""
import json
import re
from array import array

_ENTRIES = 1 << 19  # about 100 MB
_LONGEST = 64       # characters; longer text rarely repeats
_PIECES = re.compile(r"[!-/:-@\[-`{-~]|[^!-/:-@\[-`{-~]+")  # an ASCII punctuation character, or text without one


class WordCache(dict):
    """Maps text without spaces to the bytes of its token ids. `cache.encode(line)` returns the token ids of a line as an array.

    tokenizer: a tokenizers.Tokenizer for which `is_cacheable` is true, with encode_special_tokens=True.
    typecode: of the arrays, as in the module `array`.

    The cache holds the words of two generations. When the new one is full, it becomes the old one, whose words are dropped except those
    that are used again. Copies in other processes start empty.
    """

    def __init__(self, tokenizer, typecode):
        super().__init__()
        self.tokenizer, self.typecode, self.old = tokenizer, typecode, {}

    def __reduce__(self):
        return WordCache, (self.tokenizer, self.typecode)

    def encode(self, line):
        """Return the token ids of a line, without special tokens."""
        return array(self.typecode, b"".join(map(self.__getitem__, line.split(" "))))

    def __missing__(self, word):
        ids = self.old.get(word)
        if ids is None:
            pieces = _PIECES.findall(word)
            ids = b"".join(map(self.__getitem__, pieces)) if len(pieces) > 1 else self._ids_from_library(word)
        if len(word) <= _LONGEST:
            if len(self) >= _ENTRIES // 2:
                self.old = dict(self)
                self.clear()
            self[word] = ids
        return ids

    def _ids_from_library(self, word):
        return array(self.typecode, self.tokenizer.encode(word, add_special_tokens=False).ids).tobytes()


def is_cacheable(tokenizer):
    """Whether a tokenizers.Tokenizer is one of BERT's, with any settings of its normalizer, so that words have their ids separately."""
    parts = json.loads(tokenizer.to_str())
    kinds = tuple((parts[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model"))
    return (kinds == ("BertNormalizer", "BertPreTokenizer", "WordPiece") and _keeps_sequences(parts["post_processor"])
            and not parts["truncation"] and not parts["padding"] and all(token["special"] for token in parts["added_tokens"]))


def _keeps_sequences(post_processor):
    """Whether a post-processor only adds special tokens. A template could repeat the text."""
    if post_processor is None or post_processor["type"] == "BertProcessing":
        return True
    return post_processor["type"] == "TemplateProcessing" and sum("Sequence" in piece for piece in post_processor["single"]) == 1
