"""A small synthetic GLUE for the quickstart, in the layout of the official download: nine tasks, AX, and WSC for the WSC trick.

A small grammar with the vocabulary of technical documentation generates the sentences; the generating rule gives the label. Scores on it
do not carry over to GLUE. As in the real one, WNLI is hardly learnable.
"""
import itertools
import json
import random
from pathlib import Path

from _utils.glue.tasks import TASKS
from _utils.runs.checkpoints import write_atomically

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


def _sentence(pattern, fact, **more):
    text = pattern.format(base=_BASE[fact["verb"]], **fact, **more)
    return text[0].upper() + text[1:]


def _cola(rng):
    words, label = _sentence(_FACT, _fact(rng))[:-1].split(), rng.random() < .6
    if not label:
        i, j = rng.choice([pair for pair in itertools.combinations(range(len(words)), 2) if len({words[i].lower() for i in pair}) == 2])
        words[i], words[j] = words[j], words[i]
    return {"sentence": " ".join(words) + "."}, int(label)


def _sst2(rng):
    label = rng.random() < .55
    first, second = rng.sample(_GOOD if label else _BAD, 2)
    patterns = ("the {thing} is {first} and {second}", "a {first} {agent} with a {second} {thing}", "this {agent} is {first}",
                "{first} , {second} and always {first}", "it {verb} the {thing} and the result is {first}")
    return {"sentence": rng.choice(patterns).format(first=first, second=second, **_fact(rng))}, int(label)


def _mrpc(rng):
    label, fact = rng.random() < .6, _fact(rng)
    return {"sentence1": _sentence(_FACT, fact), "sentence2": _sentence(_PLACE_FIRST, fact if label else _fact(rng))}, int(label)


def _qqp(rng):
    label, fact = rng.random() < .45, _fact(rng)
    other = fact if label else _fact(rng)
    return {"question1": _sentence(_QUESTION, fact), "question2": _sentence(_QUESTION_PLACE_FIRST, other)}, int(label)


def _stsb(rng):
    fact, other = _fact(rng), _fact(rng)
    other |= {part: fact[part] for part in rng.sample(list(fact), rng.randrange(6))}
    n_same = sum(fact[part] == other[part] for part in fact)
    return {"sentence1": _sentence(_FACT, fact), "sentence2": _sentence(_FACT, other)}, float(n_same)


def _mnli(rng):
    label, fact = rng.randrange(3), _fact(rng)
    more = {"extension": rng.choice(_EXTENSIONS)} if label == 1 else {}
    return {"premise": _sentence(_FACT, fact), "hypothesis": _sentence((_SHORTER, _EXTENDED, _NEGATED)[label], fact, **more)}, label


def _rte(rng):
    texts, label = _mnli(rng)
    return {"sentence1": texts["premise"], "sentence2": texts["hypothesis"]}, int(label > 0)


def _qnli(rng):
    label = int(rng.random() < .5)
    fact = _fact(rng, place=rng.choice(_TIMES if label else _PLACES))
    return {"question": _sentence("where does the {agent} {base} the {thing}?", fact), "sentence": _sentence(_FACT, fact)}, label


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
    for name, (generate, *sizes) in _GENERATORS.items():
        task, size_of = TASKS[name], dict(zip(("train", "validation", "test"), sizes))
        for split, file in task.files.items():
            kind, rng = split.partition("_")[0], random.Random(f"{seed} {name} {file}")
            rows = [generate(rng) for _ in range(size_of[kind])]
            _write(folder / task.title / file, _lines(task, rows, kind == "test"))
    for file, size in (("train.jsonl", 300), ("val.jsonl", 104)):
        rng = random.Random(f"{seed} wsc {file}")
        _write(folder / "WSC" / file, [json.dumps(_wsc_row(*_schema(rng), i)) for i in range(size)])


def write_synthetic_roles(folder, seed=0):
    """Write train.txt and test.txt in CoNLL columns: words, and tags of the phrases that say who does what, where and when."""
    for file, size in (("train.txt", 1500), ("test.txt", 300)):
        rng = random.Random(f"{seed} roles {file}")
        lines = [line for _ in range(size) for line in (*(f"{word} {tag}" for word, tag in _roles(rng)), "")]
        _write(Path(folder) / file, lines[:-1])


def _roles(rng):
    """[(word, tag)] of a sentence."""
    fact = _fact(rng)
    phrases = [("WHO", f"the {fact['agent']}"), ("ACTION", fact["verb"]),
               ("WHAT", f"the {fact['kind']} {fact['thing']}" if rng.random() < .6 else f"the {fact['thing']}")]
    place = ("WHERE" if fact["place"] in _PLACES else "WHEN", fact["place"])
    phrases = [place, *phrases] if rng.random() < .5 else [*phrases, place]
    words = [(word, f"{'I' if i else 'B'}-{role}") for role, phrase in phrases for i, word in enumerate(phrase.split())]
    return [(words[0][0].capitalize(), words[0][1]), *words[1:], (".", "O")]


def _lines(task, rows, is_test):
    """Lines of a .tsv file. rows: [(texts by column, label)]."""
    *names, label_column = task.columns_in_files
    labels = [f"{label:.3f}" if task.is_regression else task.written_labels[label] for _, label in rows]
    if task.headerless and not is_test:
        return ["\t".join(("made-up", label, "", row["sentence"])) for (row, _), label in zip(rows, labels)]
    table = {"index": map(str, range(len(rows))), **{name: [row[text] for row, _ in rows] for name, text in zip(names, task.texts)}}
    if not is_test:
        table[label_column] = labels
    return ["\t".join(table), *("\t".join(cells) for cells in zip(*table.values()))]


def _wsc_row(text, candidate, label, index):
    words = text.split(" ")
    return {"text": text, "idx": index, "label": bool(label), "target": {
        "span1_text": f"the {candidate}", "span1_index": words.index(candidate) - 1, "span2_text": "it", "span2_index": words.index("it")}}


def _write(path, lines):
    write_atomically(path, lambda file: file.write(("\n".join(lines) + "\n").encode()))
