"""A small synthetic GLUE for the quickstart, in the layout of the official download: nine tasks, AX, and WSC for the WSC trick.

A small grammar with the vocabulary of technical documentation generates the sentences; the generating rule gives the label. Scores on it
do not carry over to GLUE. As in the real one, WNLI is hardly learnable.
"""
import itertools
import json
import random
from pathlib import Path

from _utils.glue.tasks import TASKS
from _utils.run_files.checkpoints import write_atomically

_THINGS = ("file", "page", "table", "class", "value", "string", "name", "function", "module", "list", "image", "message", "number",
           "word", "line", "thread", "process", "window", "path", "key", "method", "object", "array", "test", "task", "type")
_AGENTS = ("server", "client", "user", "parser", "program", "system", "reader", "writer", "compiler", "library", "tool", "script")
_VERBS = ("reads", "writes", "stores", "sends", "finds", "returns", "changes", "removes", "copies", "checks", "creates", "uses")
_BASE = dict(zip(_VERBS, ("read", "write", "store", "send", "find", "return", "change", "remove", "copy", "check", "create", "use")))
_PLACES = ("in the directory", "on the screen", "in the buffer", "at the top", "in the database", "on the disk", "in the header")
_TIMES = ("after the call", "before the loop", "at the start", "during the test", "every time", "at the end", "once per second")
_KINDS = ("new", "old", "first", "last", "local", "public", "empty", "large", "small", "current", "single", "special")
_GOOD = ("good", "useful", "fast", "simple", "correct", "safe", "clear", "powerful", "better", "efficient", "easy", "valid")
_BAD = ("bad", "slow", "wrong", "broken", "unsafe", "difficult", "incorrect", "useless", "invalid", "worse", "expensive", "complex")
_EXTENSIONS = ("because it is faster", "to save memory", "as an argument", "for other users", "with a special method", "by default")


class _Fact:
    """Random content of a sentence: who does what to which thing, where or when."""

    def __init__(self, rng, **fixed):
        drawn = dict(agent=rng.choice(_AGENTS), verb=rng.choice(_VERBS), kind=rng.choice(_KINDS), thing=rng.choice(_THINGS),
                     place=rng.choice(_PLACES + _TIMES))
        self.__dict__.update(drawn | fixed)

    def text(self):
        return f"The {self.agent} {self.verb} the {self.kind} {self.thing} {self.place}."

    def place_first(self):
        """The same sentence with the place first."""
        return f"{self.place.capitalize()} the {self.agent} {self.verb} the {self.kind} {self.thing}."

    def shorter(self):
        return f"The {self.agent} {self.verb} the {self.thing}."

    def negated(self):
        return f"The {self.agent} does not {_BASE[self.verb]} the {self.thing}."

    def extended(self, rng):
        return f"The {self.agent} {self.verb} the {self.thing} {rng.choice(_EXTENSIONS)}."

    def question(self):
        return f"Does the {self.agent} {_BASE[self.verb]} the {self.kind} {self.thing} {self.place}?"

    def question_place_first(self):
        return f"{self.place.capitalize()} , does the {self.agent} {_BASE[self.verb]} the {self.kind} {self.thing}?"


def _cola(rng):
    words, label = _Fact(rng).text()[:-1].split(), rng.random() < .6
    if not label:
        i, j = rng.choice([pair for pair in itertools.combinations(range(len(words)), 2) if len({words[i].lower() for i in pair}) == 2])
        words[i], words[j] = words[j], words[i]
    return {"sentence": " ".join(words) + "."}, int(label)


def _sst2(rng):
    label = rng.random() < .55
    first, second = rng.sample(_GOOD if label else _BAD, 2)
    patterns = ("the {thing} is {first} and {second}", "a {first} {agent} with a {second} {thing}", "this {agent} is {first}",
                "{first} , {second} and always {first}", "it {verb} the {thing} and the result is {first}")
    return {"sentence": rng.choice(patterns).format(first=first, second=second, **vars(_Fact(rng)))}, int(label)


def _pair_of_facts(rng, same):
    fact = _Fact(rng)
    return fact, fact if same else _Fact(rng)


def _mrpc(rng):
    label = rng.random() < .6
    one, other = _pair_of_facts(rng, label)
    return {"sentence1": one.text(), "sentence2": other.place_first()}, int(label)


def _qqp(rng):
    label = rng.random() < .45
    one, other = _pair_of_facts(rng, label)
    return {"question1": one.question(), "question2": other.question_place_first()}, int(label)


def _stsb(rng):
    one, other = _Fact(rng), _Fact(rng)
    parts = ("agent", "verb", "kind", "thing", "place")
    kept = rng.sample(parts, rng.randrange(6))
    other.__dict__.update({part: getattr(one, part) for part in kept})
    return {"sentence1": one.text(), "sentence2": other.text()}, float(sum(vars(one)[part] == vars(other)[part] for part in parts))


def _mnli(rng):
    label, fact = rng.randrange(3), _Fact(rng)
    return {"premise": fact.text(), "hypothesis": (fact.shorter, lambda: fact.extended(rng), fact.negated)[label]()}, label


def _rte(rng):
    texts, label = _mnli(rng)
    return {"sentence1": texts["premise"], "sentence2": texts["hypothesis"]}, int(label > 0)


def _qnli(rng):
    label = int(rng.random() < .5)
    fact = _Fact(rng, place=rng.choice(_TIMES if label else _PLACES))
    return {"question": f"Where does the {fact.agent} {_BASE[fact.verb]} the {fact.thing}?", "sentence": fact.text()}, label


def _schema(rng):
    """(text, candidate, label): a Winograd schema that only word order resolves."""
    one, other = rng.sample(_AGENTS, 2)
    verb, label = _BASE[rng.choice(_VERBS)], int(rng.random() < .5)
    can, quality = rng.choice([("can", rng.choice(_GOOD)), ("does not", rng.choice(_BAD))])
    return f"The {one} {can} {verb} the {other} because it is {quality}.", one if label else other, label


def _wnli(rng):
    text, candidate, label = _schema(rng)
    quality = text.rsplit(" ", 1)[1]
    return {"sentence1": text, "sentence2": f"The {candidate} is {quality}"}, label


# Generator of one row, and sizes of the training, dev and test sets.
_GENERATORS = {"cola": (_cola, 3000, 300, 200), "sst2": (_sst2, 2000, 300, 200), "mrpc": (_mrpc, 3000, 300, 200),
               "stsb": (_stsb, 2000, 300, 200), "qqp": (_qqp, 6000, 300, 200), "mnli": (_mnli, 4000, 300, 200),
               "qnli": (_qnli, 3000, 300, 200), "rte": (_rte, 2000, 300, 200), "wnli": (_wnli, 300, 71, 146), "ax": (_mnli, 0, 0, 200)}


def write_synthetic_glue(folder, seed=0):
    """Write the tables to a folder. The same seed gives the same files; existing files are replaced."""
    folder = Path(folder)
    for name, (generate, n_train, n_dev, n_test) in _GENERATORS.items():
        task = TASKS[name]
        sizes = {"train": n_train, "validation": n_dev, "test": n_test}
        for split, file in task.files.items():
            size = sizes[split.partition("_")[0]]
            rng = random.Random(f"{seed} {name} {file}")
            rows = [generate(rng) for _ in range(size)]
            _write(folder / task.title / file, _lines(task, rows, split.startswith("test")))
    for file, size in (("train.jsonl", 300), ("val.jsonl", 104)):
        rng = random.Random(f"{seed} wsc {file}")
        _write(folder / "WSC" / file, [json.dumps(_wsc_row(*_schema(rng), i)) for i in range(size)])


def _lines(task, rows, is_test):
    """Lines of a .tsv file. rows: [(texts by column, label)]."""
    *texts, label_column = task.columns_in_files
    labels = [f"{label:.3f}" if task.is_regression else task.written_labels[label] for _, label in rows]
    if task.headerless and not is_test:
        return ["\t".join(("made-up", label, "", row["sentence"])) for (row, _), label in zip(rows, labels)]
    columns = [[row[column] for row, _ in rows] for column in task.texts]
    names = task.texts if task.headerless else texts
    table = {"index": map(str, range(len(rows))), **dict(zip(names, columns))}
    if not is_test:
        table[label_column] = labels
    return ["\t".join(table), *("\t".join(cells) for cells in zip(*table.values()))]


def _wsc_row(text, candidate, label, index):
    words = text.split(" ")
    return {"text": text, "idx": index, "label": bool(label), "target": {
        "span1_text": f"the {candidate}", "span1_index": words.index(candidate) - 1, "span2_text": "it", "span2_index": words.index("it")}}


def _write(path, lines):
    write_atomically(path, lambda file: file.write(("\n".join(lines) + "\n").encode()))
