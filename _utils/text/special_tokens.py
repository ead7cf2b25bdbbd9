"""Special tokens of any tokenizer: their roles, the template that puts them around texts, the tokens of raw text."""
import itertools
import json
import re
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

import tokenizers
from tokenizers import models, pre_tokenizers, processors

from _utils.errors import UserError
from _utils.recipes import MAY_MASK_UNKNOWN

SPECIAL_TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK]".split()
# The names by which the token of a role is recognized: BERT's, and those of RoBERTa's and other tokenizers.
ROLES = {"pad_token": ("[PAD]", "<pad>"), "unk_token": ("[UNK]", "<unk>"), "cls_token": ("[CLS]", "<s>", "<cls>"),
         "sep_token": ("[SEP]", "</s>", "<sep>"), "mask_token": ("[MASK]", "<mask>")}
_HIDDEN = "\uffff"  # not a character: at the end of the name of a token, so that the model does not find it in texts
MANY_UNKNOWN = .05  # share of the tokens of a text above which a warning is printed


def roles_in(tokens):
    """{role: token} of the special tokens in a vocabulary, recognized by their names."""
    present = {role: [name for name in names if name in tokens] for role, names in ROLES.items()}
    return {role: names[0] for role, names in present.items() if names}


def check_special_tokens(roles, name, advice="add a line for each"):
    """UserError if a vocabulary has no token for a role that ELECTRA needs, or if padding or [MASK] has another role.

    roles: {role: token}.   advice: what to do if a role is missing, for the message.
    """
    if missing := [names[0] for role, names in ROLES.items() if role not in roles]:
        raise UserError(f"The vocabulary {name} lacks {', '.join(missing)}. ELECTRA needs {' '.join(SPECIAL_TOKENS)}, "
                        f"or <pad> <unk> <s> </s> <mask>: {advice}, or train a vocabulary with vocab=30522.")
    for role in ("pad_token", "mask_token"):
        if shared := [other for other in ROLES if other != role and roles[other] == roles[role]]:
            raise UserError(f"The vocabulary {name} has {roles[role]!r} as {role} and as {shared[0]}, so text would be "
                            f"taken for padding or for masks. Give it a {role} of its own, which no text contains.")


def complete_special_tokens(hf_tokenizer):
    """Add in place what a tokenizer made with the library `tokenizers` often lacks.

    It lacks the roles of its special tokens, and the template that puts them around texts.
    """
    roles = roles_in(hf_tokenizer.get_vocab()) | unknown_token(hf_tokenizer.backend_tokenizer)
    present = hf_tokenizer.special_tokens_map
    added = hf_tokenizer.backend_tokenizer.get_added_tokens_decoder().values()
    special = {token.content: token for token in added if token.special}  # with what they do to blanks beside them
    if missing := {role: special.get(token, token) for role, token in roles.items() if role not in present}:
        hf_tokenizer.add_special_tokens(missing)
    known = hf_tokenizer.all_special_tokens
    if others := [token for content, token in special.items() if content not in known]:
        hf_tokenizer.add_special_tokens({"extra_special_tokens": [*hf_tokenizer.extra_special_tokens, *others]})
    _add_template(hf_tokenizer)
    _keep_unknown(hf_tokenizer)


def _keep_unknown(hf_tokenizer):
    """Let a BPE model without a token for unknown words, which drops what its vocabulary lacks, use the tokenizer's.

    UserError if that has none either. A vocabulary with all bytes knows all words.
    """
    model = hf_tokenizer.backend_tokenizer.model
    if not isinstance(model, models.BPE) or model.unk_token is not None:
        return
    if {*pre_tokenizers.ByteLevel.alphabet()} <= hf_tokenizer.get_vocab().keys():
        return
    if hf_tokenizer.unk_token is None:
        raise UserError(f"The tokenizer {hf_tokenizer.name_or_path!r} has neither a token for unknown words nor tokens "
                        "for all bytes, so it would drop characters. Add <unk>, or train one with all bytes.")
    model.unk_token, model.fuse_unk = hf_tokenizer.unk_token, True


def unknown_token(tokenizer):
    """{"unk_token": token} of a tokenizers.Tokenizer whose model has one, else {}."""
    model = json.loads(tokenizer.to_str())["model"]
    by_id = model.get("unk_id") is not None
    token = model["vocab"][model["unk_id"]][0] if by_id else model.get("unk_token")
    return {"unk_token": token} if token else {}


class Template(NamedTuple):
    """One or two texts and the special tokens around them, as a tokenizer orders them. For BERT [CLS] A [SEP] B [SEP].

    Of each item: the number of the text, 0 or 1, or None for a special token; the id of this token; its segment id.
    """
    texts: list
    ids: list
    type_ids: list

    def fill(self, texts):
        """(ids, segment ids) of texts, lists of token ids, with special tokens."""
        ids, type_ids = [], []
        for number, special, type_id in zip(*self):
            tokens = [special] if number is None else texts[number]
            ids += tokens
            type_ids += [type_id] * len(tokens)
        return ids, type_ids

    @property
    def special(self):
        """The ids of the special tokens before, between and after the texts: a list for each of these places."""
        places = [-1, *(i for i, number in enumerate(self.texts) if number is not None), len(self.texts)]
        return [self.ids[start + 1:end] for start, end in itertools.pairwise(places)]


def templates_of(tokenizer):
    """{number of texts: Template} of a tokenizers.Tokenizer, for one and two texts."""
    probe = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))  # whatever the vocabulary
    if tokenizer.post_processor is not None:
        probe.post_processor = tokenizer.post_processor
    templates = {}
    for n in (1, 2):
        texts = "ab"[:n]
        processed = probe.post_process(*(probe.encode(text, add_special_tokens=False) for text in texts))
        # `encode` knows which tokens are texts, but gives the second one type 1 where there is no template.
        templates[n] = Template(probe.encode(*texts).sequence_ids, processed.ids, processed.type_ids)
    return templates


@lru_cache(16)
def _templates_of_texts(hf_tokenizer):
    return templates_of(text_tokenizer(hf_tokenizer))


def with_special_tokens(texts, hf_tokenizer):
    """(ids, segment ids) of one or two texts, lists of token ids, with the special tokens of a tokenizer, such as [CLS]
    A [SEP] B [SEP].
    """
    return _templates_of_texts(hf_tokenizer)[len(texts)].fill(texts)


def _add_template(hf_tokenizer):
    """Add [CLS] A [SEP] B [SEP] to a tokenizer that does not begin a text with the token that classifiers read."""
    tokenizer, cls, sep = hf_tokenizer.backend_tokenizer, hf_tokenizer.cls_token, hf_tokenizer.sep_token
    if None in (cls, sep) or templates_of(tokenizer)[1].special[0][:1] == [hf_tokenizer.cls_token_id]:
        return
    template = processors.TemplateProcessing(
        single=[cls, "$A", sep], pair=[cls, "$A", sep, "$B:1", f"{sep}:1"],
        special_tokens=[(cls, hf_tokenizer.cls_token_id), (sep, hf_tokenizer.sep_token_id)])
    if isinstance(tokenizer.post_processor, processors.ByteLevel):  # corrects offsets
        template = processors.Sequence([tokenizer.post_processor, template])
    tokenizer.post_processor = template


def never_masked(hf_tokenizer, masking):
    """The ids of the special tokens that are never masked. masking: as the configuration key."""
    # A byte-level tokenizer knows all words, so its token for unknown ones may also be its separator.
    other_roles = [getattr(hf_tokenizer, f"{role}_id", None) for role in ROLES if role != "unk_token"]
    unknown = hf_tokenizer.unk_token_id
    may_be_masked = MAY_MASK_UNKNOWN[masking] and unknown not in other_roles
    return [i for i in hf_tokenizer.all_special_ids if i != unknown or not may_be_masked]


@lru_cache(16)
def text_tokenizer(hf_tokenizer):
    """The tokenizers.Tokenizer for raw text of a fast tokenizer: a copy without padding and truncation.

    "[MASK]" and the other tokens with a role are plain text in raw text (F1). Tokens that a user added to the
    tokenizer, such as <e1> or [NUM], are tokens. Pretraining, finetuning and predictions all use it.
    """
    content = json.loads(hf_tokenizer.backend_tokenizer.to_str()) | {"padding": None, "truncation": None}
    roles, model = hf_tokenizer.special_tokens_map.values(), content["model"]
    for token in content["added_tokens"]:
        token["special"] = token["content"] in roles
    tokenizer, words = _with_special_as_text(content), dict(model["vocab"])
    names = ({*roles} - {model.get("unk_token")}) & words.keys()
    found = {i for name in names for i in tokenizer.encode(f"a {name} a", add_special_tokens=False).ids}
    is_unigram = model["type"] == "Unigram"  # finds names among its pieces; others find words that are not divided
    if not is_unigram and found.isdisjoint(map(hf_tokenizer.convert_tokens_to_ids, names)):
        return tokenizer
    words = {word + _HIDDEN * (word in names): value for word, value in words.items()}
    model["vocab"] = [*words.items()] if is_unigram else words
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] not in names]
    return _with_special_as_text(content)


def _with_special_as_text(content):
    """The tokenizers.Tokenizer of the content of a tokenizer.json, for which special tokens are text."""
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
    tokenizer.encode_special_tokens = True  # pickling loses this setting
    return tokenizer


def content_of(tokenizer):
    """The content of a tokenizers.Tokenizer, for keys and comparisons.

    It contains the library's limit on the characters of a word, so that files made earlier keep their names. Texts have
    always been read with Google's limit.
    """
    return tokenizer.to_str().replace('"max_input_chars_per_word":200', '"max_input_chars_per_word":100')


def special_tokens_in(hf_tokenizer, texts):
    """Counter of the texts that contain the name of a token with a role, such as "[SEP]", by the first such name."""
    names = hf_tokenizer.special_tokens_map.values()
    found = map(re.compile("|".join(map(re.escape, names))).search, texts)
    return Counter(match[0] for match in found if match)


def unknown_words(hf_tokenizer, texts):
    """The five most frequent words of texts that are not in the vocabulary, quoted, in a string."""
    counts = Counter()
    encodings = text_tokenizer(hf_tokenizer).encode_batch(texts, add_special_tokens=False)
    for text, encoding in zip(texts, encodings):
        places = [place for i, place in zip(encoding.ids, encoding.offsets) if i == hf_tokenizer.unk_token_id]
        counts.update(text[start:end] for start, end in places)
    return ", ".join(repr(word[:30]) for word, _ in counts.most_common(5))
