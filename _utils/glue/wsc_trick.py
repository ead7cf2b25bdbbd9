"""The WSC trick for WNLI: ask which noun a pronoun stands for, instead of whether one sentence follows from another.

WNLI's sentences come from the Winograd schema challenge. Put each candidate in the place of the pronoun; ELECTRA's discriminator
says how much it looks as if it had always stood there. Trained on WSC (SuperGLUE), which has the spans; in WNLI they are found
by comparing the two sentences. The idea is RoBERTa's, carried over to ELECTRA by electra_pytorch.
"""
import importlib.util
import itertools
import json
import math
import re
from pathlib import Path
from typing import NamedTuple

import datasets
import numpy as np
import torch
from torch import nn

from _utils.errors import PlainError, first_line

HUB_WSC = ("aps/super_glue", "wsc")
SPACY_MODELS = ("en_core_web_lg", "en_core_web_md", "en_core_web_sm")
PRONOUNS = frozenset("i me my mine you your yours he him his she her hers it its we us our ours they them their theirs "
                     "himself herself itself themselves".split())
_WORD = re.compile(r"\w+(?:['’]\w+)?|[^\w\s]")


class Schema(NamedTuple):
    """A text without its pronoun, the candidate in question, the other candidates, and whether it is the right one (-1: unknown)."""
    before: str
    after: str
    candidate: str
    others: tuple
    label: int

    def filled(self):
        """(text, start and end of the candidate in it) with each candidate in the pronoun's place, the one in question first."""
        for candidate in (self.candidate, *self.others):
            yield self.before + candidate + self.after, len(self.before), len(self.before) + len(candidate)


def find_spacy():
    """The name of the largest spaCy model of English that is installed, or None."""
    return next((name for name in SPACY_MODELS if importlib.util.find_spec(name)), None)


def load_spacy(name):
    """A spaCy model of SPACY_MODELS; None for None. PlainError if it is not installed.

    The name may come from a stranger's checkpoint, and a model of spaCy's is code: no other is loaded.
    """
    if name is None:
        return None
    if name not in SPACY_MODELS:
        raise PlainError(f"these WNLI runs name the spaCy model {name!r}, which is none of {', '.join(SPACY_MODELS)}: use other runs.")
    if importlib.util.find_spec(name) is None:
        raise PlainError(f"these WNLI runs were trained with candidates of spaCy's {name}, which is not installed here: "
                         f"python -m spacy download {name}")
    import spacy
    return spacy.load(name)


def load_wsc(split, wsc_dir=None, nlp=None):
    """Schemas of WSC's 'train' or 'validation' set, from the hub or from a folder with train.jsonl and val.jsonl.

    nlp: a spaCy model, whose noun chunks are the other candidates.   Raises PlainError naming file and line for a bad row.
    """
    if wsc_dir is None:
        rows = enumerate(_hub_rows(split))
        place = f"{HUB_WSC[0]}, {HUB_WSC[1]}, {split}, row"
    else:
        path = Path(wsc_dir) / {"train": "train.jsonl", "validation": "val.jsonl"}[split]
        rows, place = _file_rows(path), f"{path}, line"
    return [_schema(row, f"{place} {number}", nlp) for number, row in rows]


def _hub_rows(split):
    try:
        rows = datasets.load_dataset(*HUB_WSC, split=split)
    except Exception as error:  # the hub's libraries raise a dozen kinds; the way out is the same
        raise PlainError(f"WSC could not be loaded from the hub dataset {HUB_WSC[0]} ({first_line(error)}); check the connection, or "
                         "give wsc_dir=PATH with train.jsonl and val.jsonl.") from error
    return ({**row, "target": row} for row in rows)


def _file_rows(path):
    if not path.is_file():
        raise PlainError(f"wsc_trick=True needs {path}, which is not there: give wsc_dir=PATH with train.jsonl and val.jsonl.")
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise PlainError(f"{path} is not UTF-8 text (byte {error.start}): fetch the file again.") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                raise PlainError(f"{path}, line {number} is no JSON ({first_line(error)}): fetch the file again.") from None


def _schema(row, place, nlp):
    try:
        text, target, label = row["text"], row["target"], int(row["label"])
        candidate, pronoun, index = target["span1_text"], target["span2_text"], target["span2_index"]
        before = " ".join(text.split(" ")[:index])
        start = text.index(pronoun, len(before))  # behind an opening quote, if there is one
    except (KeyError, TypeError, ValueError) as error:
        raise PlainError(f"{place} is no row of WSC ({first_line(error)}): it needs text, label and target with span1_text, span2_text and "
                         "span2_index.") from None
    return make_schema(text, start, start + len(pronoun), candidate, label, nlp)


def make_schema(text, start, end, candidate, label, nlp=None):
    """Schema of a text whose pronoun is text[start:end]; `his` and the like take the candidate's possessive."""
    owner = "'s" if text[start:end].lower() in ("his", "its", "their", "my", "our", "your") else ""
    others = tuple(dict.fromkeys(other + owner for other in other_candidates(text, start, end, candidate, nlp))) if nlp else ()
    return Schema(text[:start], text[end:], candidate + owner * (not candidate.endswith("'s")), others, label)


def other_candidates(text, start, end, candidate, nlp):
    """Noun chunks of the text that are neither the pronoun nor a form of the candidate."""
    plain = lambda phrase: re.sub(r"^(the|a|an|his|her|their|my) ", "", phrase.lower())
    chunks = [chunk for chunk in nlp(text).noun_chunks if not (chunk.start_char < end and start < chunk.end_char)]
    return [chunk.text for chunk in chunks if chunk.text.lower() not in PRONOUNS and plain(chunk.text) not in plain(candidate)
            and plain(candidate) not in plain(chunk.text)]


def find_pronoun(text, hypothesis):
    """(start, end, candidate): which pronoun of `text` a WNLI hypothesis has replaced, and with what; None if it cannot be told.

    The hypothesis repeats words around the pronoun. Each that does counts 1; each that fits nowhere costs 1/2, each of the
    candidate 1/4, and a candidate that the text does not mention 2. The best place is taken.
    """
    words, said = ([(m[0], m.start(), m.end()) for m in _WORD.finditer(string)] for string in (text, hypothesis))
    there, here = ([word.lower() for word, _, _ in part] for part in (words, said))
    mentioned = " ".join(there)
    best = (-math.inf, None)
    for p, (pronoun, start, _) in enumerate(words):
        base = re.split("['’]", pronoun)[0]
        if base.lower() not in PRONOUNS:
            continue
        left = [_common(reversed(there[:p]), reversed(here[:i])) for i in range(len(here) + 1)]
        right = [_common(there[p + 1:], here[j:]) for j in range(len(here) + 1)]
        for i, j in itertools.combinations(range(len(here) + 1), 2):  # the candidate is here[i:j]
            phrase = re.sub("^(the|a|an) |['’]s?$", "", " ".join(here[i:j]))
            unmatched = i - left[i] + len(here) - j - right[j]
            fit = left[i] + right[j] - unmatched / 2 - (j - i) / 4 - 2 * (phrase not in mentioned)
            if left[i] + right[j] and fit > best[0]:
                best = fit, (start, start + len(base), hypothesis[said[i][1]:said[j - 1][2]])
    return best[1]


def _common(these, those):
    """How many first items two sequences have in common."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(these, those)))


def wnli_schemas(rows, nlp=None):
    """Schemas of WNLI's rows (a Dataset with sentence1 and sentence2); None where no pronoun could be found."""
    found = [(row, find_pronoun(row["sentence1"], row["sentence2"])) for row in rows]
    return [place and make_schema(row["sentence1"], *place, row["label"], nlp) for row, place in found]


class SchemaRows:
    """Encoded schemas for PaddedBatchDL; each row is several texts, one for each candidate. As EncodedRows."""

    def __init__(self, schemas, hf_tokenizer, max_len):
        self.texts = [self._encode(schema, hf_tokenizer, max_len) for schema in schemas]
        self.lengths = np.array([max(len(ids) for ids, _ in texts) for texts in self.texts])
        self.labels = torch.tensor([schema.label for schema in schemas])
        self.pad_idx = hf_tokenizer.pad_token_id

    @staticmethod
    def _encode(schema, hf_tokenizer, max_len):
        """[(ids, True where the candidate stands)] of one schema; of too long texts the end or the beginning is left out."""
        encoded = []
        for text, start, end in schema.filled():
            encoding = hf_tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
            inside = [a < end and start < b for a, b in encoding.offsets]
            first = max(0, min(inside.index(True) - (max_len - 2) // 2, len(inside) - (max_len - 2)))
            window = slice(first, first + max_len - 2)
            encoded.append(([hf_tokenizer.convert_tokens_to_ids("[CLS]"), *encoding.ids[window],
                             hf_tokenizer.convert_tokens_to_ids("[SEP]")], [False, *inside[window], False]))
        return encoded

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        """One row as a batch of its own."""
        return self.batch([i])

    def batch(self, rows):
        """(ids, attn_mask, is_candidate, each (N, L); row of each text (N,); first text of each row, labels (B,)), N texts of B rows."""
        texts = [(ids, inside, row) for row, i in enumerate(rows) for ids, inside in self.texts[i]]
        length = max(len(ids) for ids, _, _ in texts)
        pad = lambda values, filler: values + [filler] * (length - len(values))
        ids = torch.tensor([pad(ids, self.pad_idx) for ids, _, _ in texts])
        mask = torch.tensor([pad([1] * len(ids), 0) for ids, _, _ in texts])
        inside = torch.tensor([pad(inside, False) for _, inside, _ in texts])
        row_of_text = torch.tensor([row for _, _, row in texts])
        return ids, mask, inside, row_of_text, torch.searchsorted(row_of_text, torch.arange(len(rows))), self.labels[list(rows)]


class SchemaPredictor(nn.Module):
    """Whether the candidate in question is the right one, as two logits.

    A text's score is the mean of the discriminator's logits for "original" over the candidate's wordpieces. It has to exceed those
    of the other candidates together (their logsumexp), or, where there are none, a threshold that is learnt.
    """

    def __init__(self, discriminator):
        super().__init__()
        self.discriminator = discriminator
        self.threshold = nn.Parameter(torch.zeros(()))

    def forward(self, ids, attn_mask, is_candidate, row, first):
        """ids, attn_mask, is_candidate (N, L), row of each text (N,), each row's own candidate (B,) -> logits (B, 2)."""
        original = -self.discriminator(ids, attn_mask).logits.float()  # (N, L)
        score = (original * is_candidate).sum(1) / is_candidate.sum(1)  # (N,)
        # Masks rather than indices, whose number a GPU would have to be asked for.
        text, rows = torch.arange(len(row), device=row.device), torch.arange(len(first), device=row.device)
        is_other = (row == rows[:, None]) & (text != first[:, None])  # (B, N)
        is_alone = ~is_other.any(1)
        others = score.where(is_other, -torch.inf).masked_fill(is_alone[:, None], 0.)  # (B, N)
        margin = score[first] - torch.where(is_alone, self.threshold, others.logsumexp(1))  # (B,)
        return torch.stack([torch.zeros_like(margin), margin], dim=1)
