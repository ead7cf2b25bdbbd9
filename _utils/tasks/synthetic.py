"""A small synthetic GLUE for the quickstart, in the layout of the official download, with WSC for the WSC trick.

Sentences are templates, filled with the vocabulary of technical documentation; the template determines the label.
Scores on them do not carry over to GLUE. As in the real one, WNLI is hardly learnable.
"""
import csv
import random
from pathlib import Path

import pandas as pd

from _utils.files import write_text_atomically
from _utils.tasks.glue import TASKS

_WORDS = {
    "agent": "server client user parser program system reader writer compiler library tool script".split(),
    "verb": "read write store send find return change remove copy check create use".split(),
    "kind": "new old first last local public empty large small current single special".split(),
    "thing": "file page table class value string name function module list image message number word line thread "
             "process window path key method object array test task type".split(),
    "good": "good useful fast simple correct safe clear powerful better efficient easy valid".split(),
    "bad": "bad slow wrong broken unsafe difficult incorrect useless invalid worse expensive complex".split(),
    "where": "in the directory, on the screen, in the buffer, at the top, in the database, on the disk, in the "
             "header".split(", "),
    "when": "after the call, before the loop, at the start, during the test, every time, at the end, once per "
            "second".split(", "),
    "reason": "because it is faster, to save memory, as an argument, for other users, with a special method, by "
              "default".split(", ")}
_WORDS["place"] = _WORDS["where"] + _WORDS["when"]
_SLOTS = "agent verb kind thing place".split()

# Sentences about a fact: the same content in several forms.
_FACT = "The {agent} can {verb} the {kind} {thing} {place}."
_PLACE_FIRST = "{place} the {agent} can {verb} the {kind} {thing}."
_SHORTER = "The {agent} can {verb} the {thing}."
_EXTENDED = "The {agent} can {verb} the {thing} {reason}."
_NEGATED = "The {agent} cannot {verb} the {thing}."
_QUESTION = "Can the {agent} {verb} the {kind} {thing} {place}?"
_QUESTION_PLACE_FIRST = "{place} , can the {agent} {verb} the {kind} {thing}?"
_WHERE = "Where can the {agent} {verb} the {thing}?"
_SCHEMA = "The {agent} can {verb} the {agent2} because it is {good}."
_SCHEMA_OF_OTHER = "The {agent} can {verb} the {agent2} because it is {bad}."


def _other(template):
    """A template for another fact: each word differs."""
    return template.replace("}", "2}")


def _opinions(quality):
    return [(text.replace("good", quality),) for text in (
        "the {thing} is {good} and {good2}", "a {good} {agent} with a {good2} {thing}", "this {agent} is {good}",
        "{good} , {good2} and always {good}", "it can {verb} the {thing} and the result is {good}")]


_ENTAILMENT, _NEUTRAL, _CONTRADICTION = [(_FACT, _SHORTER)], [(_FACT, _EXTENDED)], [(_FACT, _NEGATED)]
_INFERENCE = [_ENTAILMENT, _NEUTRAL, _CONTRADICTION]
# {task: for each label, templates of its one or two texts}; CoLA's are changed, and STS-B's mix two facts.
_TEMPLATES = {
    "cola": 2 * [[(_FACT,)]], "stsb": 6 * [[(_FACT, _FACT)]], "sst2": [_opinions("bad"), _opinions("good")],
    "mrpc": [[(_FACT, _other(_PLACE_FIRST))], [(_FACT, _PLACE_FIRST)]],
    "qqp": [[(_QUESTION, _other(_QUESTION_PLACE_FIRST))], [(_QUESTION, _QUESTION_PLACE_FIRST)]],
    "mnli": _INFERENCE, "rte": [_ENTAILMENT, _NEUTRAL + _CONTRADICTION],
    "qnli": [[(_WHERE, _FACT.replace("place", place))] for place in ("where", "when")],
    "wnli": [[(_SCHEMA, "The {agent2} is {good}."), (_SCHEMA_OF_OTHER, "The {agent} is {bad}.")],
             [(_SCHEMA, "The {agent} is {good}."), (_SCHEMA_OF_OTHER, "The {agent2} is {bad}.")]]}
# the others have 2,000
_TRAINING_ROWS = {"cola": 3000, "mrpc": 3000, "qqp": 6000, "mnli": 4000, "qnli": 3000, "wnli": 300}


def write_synthetic_glue(folder):
    """Write the tables to a folder. They are the same every time; existing files are replaced."""
    for name in _TEMPLATES:
        task = TASKS[name]
        sizes = {"train": _TRAINING_ROWS.get(name, 2000), "validation": 300, "test": 146 if name == "wnli" else 200}
        for split in task.official_rows:
            kind, file = split.partition("_")[0], task.file(split)
            rng = random.Random(f"0 {name} {Path(file).name}")
            rows = [_row(task, rng) for _ in range(sizes[kind])]
            write_text_atomically(Path(folder, file), _tsv(task, rows, kind == "test"))
    for name, size in (("train", 300), ("val", 104)):
        rng = random.Random(f"0 wsc {name}")
        rows = pd.DataFrame([_wsc_row(rng) for _ in range(size)])
        write_text_atomically(Path(folder, "WSC", f"{name}.jsonl"), rows.to_json(orient="records", lines=True))


def _words(rng):
    """Two different words, "thing" and "thing2", for each slot of a template."""
    return {name + end: word for name, words in _WORDS.items() for end, word in zip(("", "2"), rng.sample(words, 2))}


def _row(task, rng):
    """(label, *texts) of a Task."""
    label, words = rng.randrange(len(_TEMPLATES[task.name])), _words(rng)
    first, *second = rng.choice(_TEMPLATES[task.name][label])
    first = first.format(**words)
    if task.name == "cola" and not label:  # two words are swapped
        tokens, i = first.split(), rng.randrange(7)
        first = " ".join([*tokens[:i], tokens[i + 1], tokens[i], *tokens[i + 2:]])
    if not task.labels:  # the score is the number of words in common
        words |= {slot: words[slot + "2"] for slot in rng.sample(_SLOTS, 5 - label)}
    return label, first, *(text.format(**words) for text in second)


def _wsc_row(rng):
    label, text, hypothesis = _row(TASKS["wnli"], rng)
    return {
        "text": text,
        "label": bool(label),
        "target": {
            "span1_text": f"the {hypothesis.split()[1]}",
            "span2_text": "it",
            "span2_index": text.split().index("it"),
        },
    }


def _tsv(task, rows, is_test):
    """The content of a .tsv file. rows: [(label, *texts)]."""
    *names, label = task.columns_in_files
    columns = ["index", *names] if is_test else task.headerless or ["index", *names, label]
    table = pd.DataFrame(rows, columns=[label, *names]).assign(source="synthetic", mark="").reset_index()
    if task.labels:
        table[label] = table[label].map(dict(enumerate(task.written_labels)))
    return table.to_csv(
        sep="\t", columns=columns, header=is_test or not task.headerless, index=False, quoting=csv.QUOTE_NONE
    )
