"""The WSC trick for WNLI: resolve the pronoun instead of classifying entailment.

WNLI is built from Winograd schemas. Each candidate noun replaces the pronoun, and ELECTRA's discriminator scores how original it looks.
Trained on WSC from SuperGLUE, which annotates the spans; for WNLI, comparing the two sentences locates them. RoBERTa introduced the idea,
and electra_pytorch adapted it to ELECTRA.
"""
import importlib.util
import itertools
import re
from pathlib import Path
from typing import NamedTuple

import datasets
import numpy as np
import torch
from torch import nn

from _utils.errors import PlainError, as_plain_error
from _utils.glue.batches import EncodedRows, ranges
from _utils.runs.files import read_json_lines

HUB_WSC = ("aps/super_glue", "wsc")
WSC_FILES = {"train": "train.jsonl", "validation": "val.jsonl"}
SPACY_MODELS = ("en_core_web_lg", "en_core_web_md", "en_core_web_sm")
PRONOUNS = frozenset("i me my mine you your yours he him his she her hers it its we us our ours they them their theirs "
                     "himself herself itself themselves".split())
POSSESSIVES = frozenset(("his", "its", "their", "my", "our", "your"))
_WORD = re.compile(r"\w+(?:['’]\w+)?|[^\w\s]")


class Schema(NamedTuple):
    """A text around its pronoun, the queried candidate, the other candidates, and the label: 1 if the queried one is right, -1 unknown."""
    before: str
    after: str
    candidate: str
    others: tuple
    label: int

    def filled(self):
        """Yield (text, start, end of the candidate) with each candidate in place of the pronoun, the queried one first."""
        for candidate in (self.candidate, *self.others):
            yield self.before + candidate + self.after, len(self.before), len(self.before) + len(candidate)


def find_spacy():
    """Name of the largest installed English spaCy model, or None."""
    return next((name for name in SPACY_MODELS if importlib.util.find_spec(name)), None)


def load_spacy(name):
    """Load one of SPACY_MODELS; None for None. Raises PlainError for another name, or a model that is not installed.

    A spaCy model is code, and the name may come from an untrusted checkpoint: hence the fixed list.
    """
    if name is None:
        return None
    if name not in SPACY_MODELS:
        raise PlainError(f"Invalid spaCy model in these WNLI runs: {name!r}. Only {', '.join(SPACY_MODELS)} are loaded. Use other runs.")
    if importlib.util.find_spec(name) is None:
        raise PlainError(f"These WNLI runs need the spaCy model {name}, which is not installed: python -m spacy download {name}")
    import spacy
    return spacy.load(name)


def load_wsc(split, wsc_dir=None, nlp=None):
    """Schemas of WSC's 'train' or 'validation' split, from the hub or from a folder with train.jsonl and val.jsonl.

    nlp: a spaCy model, whose noun chunks become the other candidates.   Raises PlainError with file and line for a malformed row.
    """
    if wsc_dir is None:
        with as_plain_error(f"Could not load WSC from the hub dataset {HUB_WSC[0]} ({{error}}). Check the connection, or set wsc_dir=PATH "
                            "to a folder with train.jsonl and val.jsonl."):
            on_hub = datasets.load_dataset(*HUB_WSC, split=split)
        rows, source = [(f"row {i}", {**row, "target": row}) for i, row in enumerate(on_hub)], ", ".join((*HUB_WSC, split))
    else:
        source = Path(wsc_dir) / WSC_FILES[split]
        if not source.is_file():
            raise PlainError(f"File not found: '{source}'. wsc_trick=True reads it: set wsc_dir=PATH to a folder with train.jsonl and "
                             "val.jsonl.")
        rows = read_json_lines(source, "Download the file again.")
    return [_schema(row, f"{source}, {place}", nlp) for place, row in rows]


def _schema(row, source, nlp):
    with as_plain_error(f"{source} is not a row of WSC ({{error}}). A row has text, label, and target with span1_text, span2_text and "
                        "span2_index."):
        text, target = row["text"], row["target"]
        before = " ".join(text.split(" ")[:target["span2_index"]])
        start = text.index(target["span2_text"], len(before))  # after an opening quote, if there is one
        return make_schema(text, start, start + len(target["span2_text"]), target["span1_text"], int(row["label"]), nlp)


def make_schema(text, start, end, candidate, label, nlp=None):
    """Schema of a text whose pronoun is text[start:end]. Candidates for a possessive pronoun get "'s"."""
    suffix = "'s" if text[start:end].lower() in POSSESSIVES else ""
    others = [other + suffix for other in other_candidates(text, start, end, candidate, nlp)] if nlp else []
    if not candidate.endswith("'s"):
        candidate += suffix
    return Schema(text[:start], text[end:], candidate, tuple(dict.fromkeys(others)), label)


def other_candidates(text, start, end, candidate, nlp):
    """Noun chunks of the text, except for pronouns and variants of the candidate."""
    plain = lambda phrase: re.sub(r"^(the|a|an|his|her|their|my) ", "", phrase.lower())
    return [chunk.text for chunk in nlp(text).noun_chunks if (chunk.end_char <= start or end <= chunk.start_char)
            and chunk.text.lower() not in PRONOUNS and plain(chunk.text) not in plain(candidate)
            and plain(candidate) not in plain(chunk.text)]


def find_pronoun(text, hypothesis):
    """(start, end, candidate): the pronoun of `text` that a WNLI hypothesis replaces, and its replacement; None if none matches.

    The hypothesis repeats the words around the pronoun, so the best alignment wins. A repeated word scores 3/2, a word of the candidate
    1/4, another word 0, and a candidate that does not occur in the text -2.
    """
    text_words, said = (list(_WORD.finditer(string)) for string in (text, hypothesis))
    words, hypothesis_words = ([match[0].lower() for match in matches] for matches in (text_words, said))
    mentioned, splits, found = " ".join(words), range(len(said) + 1), []
    for p, word in enumerate(words):
        pronoun = re.split("['’]", word)[0]
        if pronoun not in PRONOUNS:
            continue
        left = [_common_prefix(reversed(words[:p]), reversed(hypothesis_words[:i])) for i in splits]
        right = [_common_prefix(words[p + 1:], hypothesis_words[j:]) for j in splits]
        start = text_words[p].start()
        for i, j in itertools.combinations(splits, 2):  # the candidate is hypothesis_words[i:j]
            phrase = re.sub("^(the|a|an) |['’]s?$", "", " ".join(hypothesis_words[i:j]))
            if repeated := left[i] + right[j]:
                fit = repeated * 3 / 2 + (j - i) / 4 - 2 * (phrase not in mentioned)
                found.append((fit, (start, start + len(pronoun), hypothesis[said[i].start():said[j - 1].end()])))
    return max(found, key=lambda fit: fit[0], default=(0, None))[1]


def _common_prefix(a, b):
    """Length of the common prefix of two sequences."""
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b))))


def wnli_schemas(rows, nlp=None):
    """Schemas for WNLI's rows (a Dataset with sentence1 and sentence2); None for a row whose pronoun is not found."""
    pronouns = [find_pronoun(row["sentence1"], row["sentence2"]) for row in rows]
    return [found and make_schema(row["sentence1"], *found, row["label"], nlp) for row, found in zip(rows, pronouns)]


class SchemaRows(EncodedRows):
    """Encoded schemas: each row holds several texts, one per candidate."""
    n_inp = 5

    def __init__(self, schemas, hf_tokenizer, max_len):
        texts = [_encode(*filled, hf_tokenizer, max_len) for schema in schemas for filled in schema.filled()]
        self.texts = EncodedRows(texts, [0] * len(texts), hf_tokenizer.pad_token_id)
        self.n_texts = np.array([1 + len(schema.others) for schema in schemas])
        self.first = np.cumsum(self.n_texts) - self.n_texts
        self.lengths = np.maximum.reduceat(self.texts.lengths, self.first)
        self.labels = torch.tensor([schema.label for schema in schemas])

    def batch(self, rows, multiple=1):
        """(ids, attn_mask, is_candidate, row, first, labels) for B rows with N texts in all.

        ids, attn_mask, is_candidate: (N, L), L as in EncodedRows.   row: of each text, (N,).   first: index of each row's first text, (B,).
        labels: (B,).
        """
        ids, mask, is_candidate, _ = self.texts.batch(ranges(self.first[rows], self.n_texts[rows]), multiple)
        n_texts = torch.from_numpy(self.n_texts[rows])
        row = torch.arange(len(rows)).repeat_interleave(n_texts)
        return ids, mask, is_candidate, row, n_texts.cumsum(0) - n_texts, self.labels[rows]


def _encode(text, start, end, hf_tokenizer, max_len):
    """A text with the candidate text[start:end] for EncodedRows, where token_type_ids mark it. A long text is cut to a window around it."""
    encoding, room = hf_tokenizer.backend_tokenizer.encode(text, add_special_tokens=False), max_len - 2
    inside = [a < end and start < b for a, b in encoding.offsets]
    first = max(0, min(inside.index(True) - room // 2, len(inside) - room))
    window = slice(first, first + room)
    return {"inp_ids": [hf_tokenizer.cls_token_id, *encoding.ids[window], hf_tokenizer.sep_token_id],
            "token_type_ids": [0, *inside[window], 0]}


class SchemaPredictor(nn.Module):
    """Two logits for whether the queried candidate is the right one.

    The score of a text is the discriminator's mean logit for "original" over the candidate's tokens. It competes with the logsumexp of the
    other candidates' scores, or with a learned threshold if there are none.
    """

    def __init__(self, discriminator):
        super().__init__()
        self.discriminator = discriminator
        self.threshold = nn.Parameter(torch.zeros(()))

    def forward(self, ids, attn_mask, is_candidate, row, first):
        """ids, attn_mask, is_candidate (N, L), row (N,), first (B,) as in `SchemaRows.batch` -> logits (B, 2)."""
        original = -self.discriminator(ids, attn_mask).logits.float()  # (N, L)
        score = (original * is_candidate).sum(1) / is_candidate.sum(1)  # (N,)
        # Masks instead of indices, whose number would need a host sync.
        text, rows = torch.arange(len(row), device=row.device), torch.arange(len(first), device=row.device)
        is_other = (row == rows[:, None]) & (text != first[:, None])  # (B, N)
        is_alone = ~is_other.any(1)
        others = score.where(is_other, -torch.inf).masked_fill(is_alone[:, None], 0.)  # (B, N)
        margin = score[first] - torch.where(is_alone, self.threshold, others.logsumexp(1))  # (B,)
        return torch.stack([torch.zeros_like(margin), margin], dim=1)
