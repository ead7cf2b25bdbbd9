"""The WSC trick for WNLI: resolve the pronoun instead of classifying entailment.

WNLI is built from Winograd schemas. A candidate replaces the pronoun, and ELECTRA's discriminator scores how original
it looks.
Trained on WSC from SuperGLUE, which annotates the spans; for WNLI, comparing the two sentences locates them. RoBERTa
introduced the idea, and electra_pytorch adapted it to ELECTRA. There, other nouns that spaCy finds compete with the
candidate; here, a learned threshold does.
"""
import itertools
import re
import sys
from pathlib import Path
from typing import NamedTuple

import datasets
import torch
from torch import nn

from _utils.errors import as_user_error
from _utils.files import read_json_lines
from _utils.hub import load_split
from _utils.names import check_file
from _utils.tasks.glue import TASKS, load_task
from _utils.tasks.parts import Head, Inputs
from _utils.tasks.rows import EncodedRows, Window
from _utils.tasks.task import Task, kind_of_task
from _utils.text.special_tokens import text_tokenizer

HUB_WSC = ("aps/super_glue", "wsc")
WSC_FILES = {"train": "train.jsonl", "validation": "val.jsonl"}
PRONOUNS = frozenset("i me my mine you your yours he him his she her hers it its we us our ours they them their theirs "
                     "himself herself itself themselves".split())
POSSESSIVES = frozenset("his its their my our your".split())
_WORD = re.compile(r"\w+(?:['’]\w+)?|[^\w\s]")


class Schema(NamedTuple):
    """A text whose pronoun was replaced by a candidate, now text[start:end].

    label: 1 if the candidate is right, 0 if it is wrong, -1 if unknown.
    """
    text: str
    start: int
    end: int
    label: int


class WscInputs(Inputs):
    """Rows of `Schema`s, or of WNLI."""

    def texts_in(self, rows):
        return rows["text" if "text" in rows.column_names else "sentence1"][:]

    def encode(self, rows, hf_tokenizer, settings, sentence_predictor, training=False):
        """SchemaRows of a Dataset of schemas, or of WNLI's."""
        if "start" in rows.column_names:
            schemas = [Schema(**row) for row in rows]
        else:
            schemas = wnli_schemas(rows)
            n_found = sum(schema.start >= 0 for schema in schemas)
            print(f"WNLI: found the pronoun in {n_found} of {len(schemas)} rows", file=sys.stderr)
        return SchemaRows(schemas, hf_tokenizer, settings.max_length)


class WscHead(Head):
    """The discriminator's own head, and a threshold. The chance that a candidate is right is that of "entailment"."""
    keys = ()

    def network(self, pretrained, settings, sentence_predictor):
        return SchemaPredictor(pretrained.discriminator())

    def outputs(self, rows, logits):
        """Probabilities (N, 2); rows without a recognized pronoun get the majority class."""
        return torch.where(rows.is_found[:, None], logits.softmax(-1), torch.tensor([1., 0.]))

    def why_not_exported(self, settings, family):
        return "the WSC trick"


@kind_of_task
class Wsc(Task):
    """WNLI with the WSC trick. A row is a `Schema`; those of WNLI's test set whose pronoun is not found have start -1.
    """
    inputs_class = WscInputs
    head_class = WscHead


def load_wsc_task(glue_dir):
    """TaskData with WSC's rows for training and evaluation, and WNLI's test set; glue_dir as in the configuration."""
    folder = Path(glue_dir or "datasets", "WSC")
    wsc_dir = folder if folder.is_dir() else None
    data = load_task(TASKS["wnli"], glue_dir, ["test"])
    splits = {
        split: to_rows(load_wsc(name, wsc_dir))
        for split, name in (("train", "train"), (WSC.devs[0], "validation"))
    }
    return data._replace(task=WSC, splits={**splits, **data.splits})


WSC = Wsc(
    **{
        name: getattr(TASKS["wnli"], name)
        for name in ("name", "title", "texts", "labels", "file_labels", "majority", "test_files")
    },
    devs=("wsc_validation",),
    epochs=10,
    score_titles=(("wsc_validation", "WNLI (on WSC)"),),
)


def to_rows(schemas):
    """Dataset of schemas."""
    return datasets.Dataset.from_list([schema._asdict() for schema in schemas])


def load_wsc(split, wsc_dir=None):
    """Schemas of WSC's 'train' or 'validation' split, from the hub or from a folder with train.jsonl and val.jsonl.

    Raises UserError with file and line for a malformed row.
    """
    if wsc_dir is None:
        with as_user_error(f"Could not load WSC from the hub dataset {HUB_WSC[0]} ({{error}}). Check the connection "
                           "and rerun, or put train.jsonl and val.jsonl into WSC/ of glue_dir, or of datasets/."):
            on_hub = load_split(*HUB_WSC, split)
        rows = [(f"row {i}", {**row, "target": row}) for i, row in enumerate(on_hub)]
        source = ", ".join((*HUB_WSC, split))
    else:
        source = Path(wsc_dir) / WSC_FILES[split]
        check_file(source, "wsc_trick=True reads it. Put it there.")
        rows = read_json_lines(source, "Download the file again.")
    return [_schema(row, f"{source}, {place}") for place, row in rows]


def _schema(row, source):
    with as_user_error(f"{source} is not a row of WSC ({{error}}). A row has text, label, and target with span1_text, "
                       "span2_text and span2_index."):
        text, target = row["text"], row["target"]
        before = " ".join(text.split(" ")[:target["span2_index"]])
        start = text.index(target["span2_text"], len(before))  # after an opening quote, if there is one
        return make_schema(text, start, start + len(target["span2_text"]), target["span1_text"], int(row["label"]))


def make_schema(text, start, end, candidate, label):
    """Schema of a text whose pronoun is text[start:end]. The candidate for a possessive pronoun gets "'s"."""
    if text[start:end].lower() in POSSESSIVES and not candidate.endswith("'s"):
        candidate += "'s"
    return Schema(text[:start] + candidate + text[end:], start, start + len(candidate), label)


def find_pronoun(text, hypothesis):
    """(start, end, candidate): the pronoun of `text` that a WNLI hypothesis replaces, and its replacement.

    None if no pronoun matches. The hypothesis repeats the words around the pronoun, so the best alignment wins. A
    repeated word scores 3/2, a word of the candidate 1/4, another word 0, and a candidate that does not occur in the
    text -2.
    """
    text_words, said = (list(_WORD.finditer(string)) for string in (text, hypothesis))
    words, hypothesis_words = ([match[0].lower() for match in matches] for matches in (text_words, said))
    mentioned, splits, alignments = " ".join(words), range(len(said) + 1), []
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
                candidate = hypothesis[said[i].start():said[j - 1].end()]
                alignments.append((fit, (start, start + len(pronoun), candidate)))
    return max(alignments, key=lambda fit: fit[0], default=(0, None))[1]


def _common_prefix(a, b):
    """Length of the common prefix of two sequences."""
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b))))


def wnli_schemas(rows):
    """Schemas for WNLI's rows, with start -1 where the pronoun is not found.

    rows: a Dataset with sentence1 and sentence2.
    """
    places = [find_pronoun(row["sentence1"], row["sentence2"]) for row in rows]
    return [
        make_schema(row["sentence1"], *place, row["label"]) if place else Schema(row["sentence1"], -1, -1, row["label"])
        for row, place in zip(rows, places)
    ]


class SchemaRows(EncodedRows):
    """Encoded schemas, whose token_type_ids mark the candidate. A long text is cut to a window around it.

    schemas: with start -1 for a row of WNLI whose pronoun was not found.   is_found: for each row, whether it was.
    """

    def __init__(self, schemas, hf_tokenizer, max_len):
        self.is_found = torch.tensor([schema.start >= 0 for schema in schemas])
        windows, room = [], max_len - 2
        for schema in schemas:
            encoding = text_tokenizer(hf_tokenizer).encode(schema.text, add_special_tokens=False)
            inside = [start < schema.end and schema.start < end or schema.start < 0 for start, end in encoding.offsets]
            first = max(0, min([*inside, True].index(True) - room // 2, len(inside) - room))
            place = slice(first, first + room)
            ids = [hf_tokenizer.cls_token_id, *encoding.ids[place], hf_tokenizer.sep_token_id]
            windows.append(([Window(ids, [0, *inside[place], 0])], len(ids)))
        super().__init__(windows, [schema.label for schema in schemas], hf_tokenizer.pad_token_id)


class SchemaPredictor(nn.Module):
    """Two logits for whether the candidate is the right one.

    Its score is the discriminator's mean logit for "original" over its tokens, compared with a learned threshold.
    """

    def __init__(self, discriminator):
        super().__init__()
        self.discriminator = discriminator
        self.threshold = nn.Parameter(torch.zeros(()))

    @property
    def base_model(self):
        """The encoder."""
        return self.discriminator.electra

    def forward(self, ids, attn_mask, is_candidate):
        """ids, attn_mask, is_candidate (B, L) -> logits (B, 2)."""
        original = -self.discriminator(ids, attn_mask).logits.float()  # (B, L)
        margin = (original * is_candidate).sum(1) / is_candidate.sum(1) - self.threshold  # (B,)
        return torch.stack([torch.zeros_like(margin), margin], dim=1)
