"""Token ids of BERT's tokenizers through a bounded cache of words. They are those that the `tokenizers` library returns for whole lines.

Lines are split at spaces (U+0020), and words that are not in the cache at ASCII punctuation. Let `p` be such a character. No step of these
tokenizers carries anything across `p`:

- Added tokens: all are special, and with `encode_special_tokens` the library does not search the text for them.
- `clean_text`, `handle_chinese_chars` and `lowercase` replace one character at a time. They do not change `p`.
- `strip_accents` decomposes one character at a time, reorders unbroken runs of combining characters (NFD), and drops nonspacing marks.
  `p` is not changed, is not combining, and therefore ends a run. NFD never composes: a mark that follows `p` does not merge with it.
- `BertPreTokenizer` removes whitespace and separates every punctuation character, so there is always a word boundary at `p`.
- WordPiece and its limit `max_input_chars_per_word` see one such word at a time.

Words of ASCII letters and digits pass the normalizer unchanged or in lower case, and the pre-tokenizer in one piece, so WordPiece alone
gives their ids. `str.split()` would be wrong: it also splits at U+001C to U+001F, which `clean_text` removes.
"""
import json
import re
from array import array

_ENTRIES = 1 << 19  # 70 MB; twice as many are a tenth faster
_LONGEST = 64       # characters; longer words rarely repeat
_PIECES = re.compile(r"[!-/:-@\[-`{-~]|[^!-/:-@\[-`{-~]+")  # an ASCII punctuation character, or text without one


class WordCache(dict):
    """Maps text without spaces to the bytes of its token ids, computed when first needed. `encode(line)` returns the ids of a line.

    tokenizer: a tokenizers.Tokenizer that `is_cacheable`, with encode_special_tokens=True.   typecode: of the ids, as in `array`.

    When half of the entries are used they become `old`, and the old ones are dropped. Old words that occur again are kept. A pickled cache
    is empty.
    """

    def __init__(self, tokenizer, typecode):
        super().__init__()
        self.tokenizer, self.typecode, self.old = tokenizer, typecode, {}
        self.model, self.lowercase = tokenizer.model, tokenizer.normalizer.lowercase

    def __reduce__(self):
        return WordCache, (self.tokenizer, self.typecode)

    def encode(self, line):
        """Return the token ids of a line as an array, without special tokens."""
        return array(self.typecode, b"".join(map(self.__getitem__, line.split(" "))))

    def __missing__(self, word):
        ids = self.old.get(word)
        if ids is None:
            ids = self._compute(word)
        if len(word) <= _LONGEST:
            if len(self) >= _ENTRIES // 2:
                self.old = dict(self)
                self.clear()
            self[word] = ids
        return ids

    def _compute(self, word):
        if word.isascii() and word.isalnum():
            if self.lowercase and (lower := word.lower()) != word:
                return self[lower]
            ids = [token.id for token in self.model.tokenize(word)]
        elif len(pieces := _PIECES.findall(word)) > 1:
            return b"".join(map(self.__getitem__, pieces))
        else:
            [encoding] = self.tokenizer.encode_batch_fast([word], add_special_tokens=False)
            ids = encoding.ids
        return array(self.typecode, ids).tobytes()


def is_cacheable(tokenizer):
    """Whether a tokenizers.Tokenizer is one of BERT's, with any settings of its normalizer and no added tokens that are not special."""
    parts = json.loads(tokenizer.to_str())
    kinds = tuple((parts[name] or {}).get("type") for name in ("normalizer", "pre_tokenizer", "model"))
    return (kinds == ("BertNormalizer", "BertPreTokenizer", "WordPiece") and _only_adds_special_tokens(parts["post_processor"])
            and not parts["truncation"] and not parts["padding"] and all(token["special"] for token in parts["added_tokens"]))


def _only_adds_special_tokens(post_processor):
    """Whether a post-processor keeps the ids of the text. A template can repeat them."""
    if post_processor is None or post_processor["type"] == "BertProcessing":
        return True
    return post_processor["type"] == "TemplateProcessing" and sum("Sequence" in piece for piece in post_processor["single"]) == 1
