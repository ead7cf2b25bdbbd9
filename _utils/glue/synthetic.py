"""A small synthetic GLUE for the quickstart, in the layout of the official download: nine tasks, AX, and WSC for the WSC trick.

A small grammar with the vocabulary of technical documentation generates the sentences; the generating rule gives the label. Scores on it
do not carry over to GLUE. As in the real one, WNLI is hardly learnable.
"""
import csv
import itertools
import json
import random
from functools import partial
from pathlib import Path

import pandas as pd

from _utils.glue.tasks import TASKS
from _utils.runs.checkpoints import write_atomically

_THINGS = ("file page table class value string name function module list image message number word line thread process window path key "
           "method object array test task type").split()
_AGENTS = "server client user parser program system reader writer compiler library tool script".split()
_VERBS = "reads writes stores sends finds returns changes removes copies checks creates uses".split()
_PLACES = "in the directory, on the screen, in the buffer, at the top, in the database, on the disk, in the header".split(", ")
_TIMES = "after the call, before the loop, at the start, during the test, every time, at the end, once per second".split(", ")
_KINDS = "new old first last local public empty large small current single special".split()
_GOOD = "good useful fast simple correct safe clear powerful better efficient easy valid".split()
_BAD = "bad slow wrong broken unsafe difficult incorrect useless invalid worse expensive complex".split()
_EXTENSIONS = ("because it is faster, to save memory, as an argument, for other users, with a special method, by default").split(", ")

# Sentences about a fact: the same content in several forms.
_FACT = "the {agent} {verb} the {kind} {thing} {place}."
_PLACE_FIRST = "{place} the {agent} {verb} the {kind} {thing}."
_SHORTER = "the {agent} {verb} the {thing}."
_EXTENDED = "the {agent} {verb} the {thing} {extension}."
_NEGATED = "the {agent} does not {base} the {thing}."
_QUESTION = "does the {agent} {base} the {kind} {thing} {place}?"
_QUESTION_PLACE_FIRST = "{place} , does the {agent} {base} the {kind} {thing}?"


def _fact(rng, **fixed):
    """Random content of a sentence: who does what to which thing, where or when."""
    return dict(agent=rng.choice(_AGENTS), verb=rng.choice(_VERBS), kind=rng.choice(_KINDS), thing=rng.choice(_THINGS),
                place=rng.choice(_PLACES + _TIMES)) | fixed


def _base(verb):
    """The verb without the s of the third person."""
    return "copy" if verb == "copies" else verb[:-1]


def _sentence(pattern, fact, **more):
    text = pattern.format(base=_base(fact["verb"]), **fact, **more)
    return text[0].upper() + text[1:]


# Each generator returns a row: the label and the texts.
def _cola(rng):
    words, label = _sentence(_FACT, _fact(rng))[:-1].split(), rng.random() < .6
    if not label:
        pairs = itertools.combinations(range(len(words)), 2)
        i, j = rng.choice([(i, j) for i, j in pairs if words[i].lower() != words[j].lower()])
        words[i], words[j] = words[j], words[i]
    return label, " ".join(words) + "."


def _sst2(rng):
    label = rng.random() < .55
    first, second = rng.sample(_GOOD if label else _BAD, 2)
    patterns = ("the {thing} is {first} and {second}", "a {first} {agent} with a {second} {thing}", "this {agent} is {first}",
                "{first} , {second} and always {first}", "it {verb} the {thing} and the result is {first}")
    return label, rng.choice(patterns).format(first=first, second=second, **_fact(rng))


def _paraphrase(share, first, second, rng):
    """A pair with the same content in a share of the rows. first, second: patterns."""
    label, fact = rng.random() < share, _fact(rng)
    return label, _sentence(first, fact), _sentence(second, fact if label else _fact(rng))


def _stsb(rng):
    fact, other = _fact(rng), _fact(rng)
    other |= {part: fact[part] for part in rng.sample(list(fact), rng.randrange(6))}
    return sum(fact[part] == other[part] for part in fact), _sentence(_FACT, fact), _sentence(_FACT, other)


def _mnli(rng):
    label, fact = rng.randrange(3), _fact(rng)
    more = {"extension": rng.choice(_EXTENSIONS)} if label == 1 else {}
    return label, _sentence(_FACT, fact), _sentence((_SHORTER, _EXTENDED, _NEGATED)[label], fact, **more)


def _rte(rng):
    label, *texts = _mnli(rng)
    return label > 0, *texts


def _qnli(rng):
    label = rng.random() < .5
    fact = _fact(rng, place=rng.choice(_TIMES if label else _PLACES))
    return label, _sentence("where does the {agent} {base} the {thing}?", fact), _sentence(_FACT, fact)


def _schema(rng):
    """(label, text, candidate): a Winograd schema that only word order resolves."""
    one, other = rng.sample(_AGENTS, 2)
    verb, label = _base(rng.choice(_VERBS)), rng.random() < .5
    can, quality = rng.choice([("can", rng.choice(_GOOD)), ("does not", rng.choice(_BAD))])
    return label, f"The {one} {can} {verb} the {other} because it is {quality}.", one if label else other


def _wnli(rng):
    label, text, candidate = _schema(rng)
    return label, text, f"The {candidate} is {text.split()[-1]}"


# Generator of one row, and sizes of the training and test sets.
_GENERATORS = {"cola": (_cola, 3000, 200), "sst2": (_sst2, 2000, 200), "stsb": (_stsb, 2000, 200),
               "mrpc": (partial(_paraphrase, .6, _FACT, _PLACE_FIRST), 3000, 200),
               "qqp": (partial(_paraphrase, .45, _QUESTION, _QUESTION_PLACE_FIRST), 6000, 200), "mnli": (_mnli, 4000, 200), "qnli": (_qnli, 3000, 200), "rte": (_rte, 2000, 200),
               "wnli": (_wnli, 300, 146), "ax": (_mnli, 0, 200)}


def write_synthetic_glue(folder, seed=0):
    """Write the tables to a folder. The same seed gives the same files; existing files are replaced."""
    folder = Path(folder)
    for name, (generate, n_train, n_test) in _GENERATORS.items():
        task, sizes = TASKS[name], {"train": n_train, "validation": 71 if name == "wnli" else 300, "test": n_test}
        for split in task.official_rows:
            kind, file = split.partition("_")[0], task.file(split)
            rng = random.Random(f"{seed} {name} {file}")
            rows = [generate(rng) for _ in range(sizes[kind])]
            _write(folder / task.title / file, _tsv(task, rows, kind == "test"))
    for file, size in (("train.jsonl", 300), ("val.jsonl", 104)):
        rng = random.Random(f"{seed} wsc {file}")
        _write(folder / "WSC" / file, "".join(json.dumps(_wsc_row(i, *_schema(rng))) + "\n" for i in range(size)))


def write_synthetic_roles(folder, seed=0):
    """Write train.txt and test.txt in CoNLL columns: words, and tags of the phrases that say who does what, where and when."""
    for file, size in (("train.txt", 1500), ("test.txt", 300)):
        rng = random.Random(f"{seed} roles {file}")
        _write(Path(folder) / file, "\n".join("".join(f"{word} {tag}\n" for word, tag in _roles(rng)) for _ in range(size)))


def _roles(rng):
    """[(word, tag)] of a sentence."""
    fact = _fact(rng)
    phrases = [("WHO", f"the {fact['agent']}"), ("ACTION", fact["verb"]),
               ("WHAT", f"the {fact['kind']} {fact['thing']}" if rng.random() < .6 else f"the {fact['thing']}")]
    place = ("WHERE" if fact["place"] in _PLACES else "WHEN", fact["place"])
    phrases = [place, *phrases] if rng.random() < .5 else [*phrases, place]
    words = [(word, f"{'I' if i else 'B'}-{role}") for role, phrase in phrases for i, word in enumerate(phrase.split())]
    return [(words[0][0].capitalize(), words[0][1]), *words[1:], (".", "O")]


def _tsv(task, rows, is_test):
    """The content of a .tsv file. rows: [(label, *texts)]."""
    *names, label = task.columns_in_files
    table = pd.DataFrame(rows, columns=[label, *names])
    table[label] = table[label].map("{:.3f}".format if task.is_regression else task.written_labels.__getitem__)
    columns = ["index", *names] if is_test else list(task.headerless) or ["index", *names, label]
    table = table.assign(index=table.index, source="made-up", mark="")[columns]
    return table.to_csv(sep="\t", header=is_test or not task.headerless, index=False, quoting=csv.QUOTE_NONE, lineterminator="\n")


def _wsc_row(index, label, text, candidate):
    words = text.split(" ")
    return {"text": text, "idx": index, "label": label, "target": {
        "span1_text": f"the {candidate}", "span1_index": words.index(candidate) - 1, "span2_text": "it", "span2_index": words.index("it")}}


def _write(path, text):
    write_atomically(path, lambda file: file.write(text.encode()))
