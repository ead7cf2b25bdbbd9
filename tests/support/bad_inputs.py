"""A table of invalid configurations, files and rows, and the folder of valid files in which each of them is tested."""
import contextlib
import json
import os
import re
import shutil
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch
from recorded import GOLDEN, recorded
from tiny_finetuning import table_row

import finetune
from _utils.commands.export_hf import export_hf
from _utils.finetuning.model import save_finetuned
from _utils.networks import load_pretrained
from _utils.tasks.glue import TASKS
from _utils.tasks.settings import Settings
from _utils.text.vocabulary import SPECIAL_TOKENS

ENGLISH = "The generator replaces some words of the text.\nThe discriminator finds every replaced word.\n\n"
LETTERS = [*"abcdefghijklmnopqrstuvwxyz.", *("##" + letter for letter in "abcdefghijklmnopqrstuvwxyz")]
WORDS = [*SPECIAL_TOKENS, *LETTERS]


class Case(NamedTuple):
    """A command with a mistake. message: regular expression of its last line.

    files: {name: content, a function from the valid file's bytes to the content, or None to delete the file}; a name
    that ends with / is a folder, deleted or empty.
    reads_data: the mistake is in the text or the tables, so they are read and prepared files may be written; otherwise
    nothing may be written.
    """
    command: str
    arguments: list
    message: str
    files: dict
    reads_data: bool


CASES = {}


def add(command, cases, defaults=(), reads_data=False):
    """Add {name: (arguments, message) or (arguments, message, files)}. defaults: arguments, unless their keys are
    given.
    """
    for name, (arguments, message, *files) in cases.items():
        arguments = arguments.split() if isinstance(arguments, str) else arguments
        given = {argument.partition("=")[0] for argument in arguments}
        arguments = [*(default for default in defaults if default.partition("=")[0] not in given), *arguments]
        CASES[f"{command}: {name}"] = Case(command, arguments, message, files[0] if files else {}, reads_data)


# Damaged files

class Trap:
    """An object whose pickle creates a folder when it is loaded without weights_only."""

    def __reduce__(self):
        return os.mkdir, ("trapped",)


def cut(content):
    return content[:len(content) // 2]


def flip(content):
    """The content with inverted bytes in the middle, where the weights are."""
    middle = len(content) // 2
    return content[:middle] + bytes(255 - byte for byte in content[middle:middle + 64]) + content[middle + 64:]


def replace(old, new):
    return lambda content: content.replace(old.encode(), new.encode())


def copy_of(name):
    return lambda _: Path(name).read_bytes()


def file_of(write):
    """The bytes that `write(path)` writes to a file."""
    def content(_):
        path = Path("temporary")
        write(path)
        written = path.read_bytes()
        path.unlink()
        return written
    return content


def climbing_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../trapped", "x")


TRAP = file_of(lambda path: torch.save({"model": Trap()}, path))
OLD_TRAP = file_of(lambda path: torch.save({"model": Trap()}, path, _use_new_zipfile_serialization=False))
# A transformers folder whose configuration, model and tokenizer are code that creates the folder `trapped`
CUSTOM_CODE = {
    "trap/config.json": json.dumps({"model_type": "trap", "auto_map": dict.fromkeys(
        ("AutoConfig", "AutoModel", "AutoModelForMaskedLM"), "trap.Trap")}),
    "trap/tokenizer_config.json": json.dumps(
        {"tokenizer_class": "Trap", "auto_map": {"AutoTokenizer": ["trap.Trap", "trap.Trap"]}}),
    "trap/vocab.txt": "\n".join(WORDS),
    "trap/trap.py": "import os\nos.mkdir('trapped')\nclass Trap: pass\n",
}


def damaged_weights(folder):
    weights = f"{folder}/model.safetensors"
    return {"without weights": {weights: None}, "with cut weights": {weights: cut},
            "with a trap": {weights: None, f"{folder}/pytorch_model.bin": TRAP}}


# Pretraining

# a pair has a vocabulary
CONTINUE = "size=tiny datas=text.txt steps=2 bs=4 num_workers=0 device=cpu logger=None".split()
PRETRAIN = [*CONTINUE, "vocab=vocab.txt"]
PAIR = "lr=1e-3 warmup_steps=1 initial_weights="
add("pretrain.py", {
    "a path for a name": ("base_run_name=../x", r"base_run_name.*\.\./x"),
    "a missing device": ("device=cuda:99", "'cuda:99'.*device=cpu"),
    "no folder for uploads": ("upload_to=nowhere://x", "upload_to.*nowhere://x"),
    "an unknown family": ("generator={'model_type':'elektra'}", "elektra.*model_type"),
    "heads that do not divide": ("discriminator={'model_type':'electra','hidden_size':64,'num_attention_heads':5}",
                                 "64.*5"),
    "no folder of a network": ("generator=./networks/a", "./networks/a.*config.json"),
    "a missing path after a valid one": ("datas=text.txt,missing.txt", "'missing.txt'"),
    "an unreachable hub": ("datas=openwebtext", "'openwebtext'.*quickstart=True"),
    "a file for a folder of datasets": ("", "datasets.*file", {"datasets": "x"}),
    "a file for a folder of checkpoints": ("", "checkpoints.*file", {"checkpoints": "x"}),
    "no vocabulary": ("vocab=words.txt", "words.txt"),
    "a folder without tokenizer": ("vocab=folder", "'folder'", {"folder/config.json": '{"model_type": "electra"}'}),
    "a misspelt hub id": ("vocab=google/elektra", "'google/elektra'"),
}, PRETRAIN)
add("pretrain.py", {
    "JSON without text": ("datas=a.jsonl", 'a.jsonl, line 1.*"text"', {"a.jsonl": '{"body": ""}'}),
    "too little text": ("datas=a.txt", "1 .*bs=4", {"a.txt": "a"}),
}, PRETRAIN, reads_data=True)
add("pretrain.py", {
    "another size": (f"{PAIR}model.pth size=small", "'model.pth'.*size=tiny"),
    "a pair without generator": (f"{PAIR}pair", "'pair'.*generator", {"pair/generator/": None}),
    "a finetuned checkpoint": (f"{PAIR}cola.pth", "'cola.pth'.*pretrain.py"),
    **{f"a pair {name}": (f"{PAIR}pair", "pair/discriminator", files)
       for name, files in damaged_weights("pair/discriminator").items()},
}, CONTINUE)

# Finetuning

FINETUNE = ("size=tiny pretrained_checkpoint=model.pth glue_dir=glue tasks=cola end=1 max_length=32 device=cpu "
            "logger=None group_name=g").split()
SCORES = "checkpoints/glue/scores.jsonl"
add("finetune.py", {
    "a NUL byte": ("glue_dir='glue\\0'", "glue_dir"),
    "a run of another task": ("th_run={'cola':0,'rte':3}", "th_run.*'rte'.*cola"),
    "another size": ("size=small", "model.pth.*size=tiny"),
    "no finished run": ("do_finetune=False", "'g'.*do_finetune=False"),
    "a finetuned checkpoint": ("pretrained_checkpoint=cola.pth", "'cola.pth'.*pretrain.py"),
    "an empty folder": ("pretrained_checkpoint=empty", "'empty'", {"empty/": ""}),
    "a folder with custom code": ("pretrained_checkpoint=trap", "'trap'", CUSTOM_CODE),
    "a misspelt hub id": ("pretrained_checkpoint=google/elektra", "'google/elektra'.*folder"),
    "a file for a folder of checkpoints": ("", "checkpoints.*file", {"checkpoints": "x"}),
    "a file for a folder of test files": ("", "test_outputs.*file", {"test_outputs": "x"}),
    **{f"a folder {name}": ("pretrained_checkpoint=pair/discriminator", "pair/discriminator", files)
       for name, files in damaged_weights("pair/discriminator").items()},
}, FINETUNE)
add("finetune.py", {
    "no run of MNLI": ("tasks=rte start_from_mnli=True", "start_from_mnli.*'g'"),
    "a damaged table of runs": ("", "scores.jsonl, line 1", {SCORES: "nonsense\n"}),
    "a damaged finished run": ("do_finetune=False", "'checkpoints/glue/g_cola_0.pth'",
                               {SCORES: copy_of("scores.jsonl"), "checkpoints/glue/g_cola_0.pth": "x"}),
    "a cut row": ("tasks={'train':'own.csv'}", "own.csv, line 4", {"own.csv": "text,label\nGood,5\nBad,1\nFi"}),
    "wrong labels": ("tasks=rte", "RTE/dev.tsv, line .*'not_entails'.*not_entailment",
                     {"glue/RTE/dev.tsv": replace("entailment\n", "entails\n")}),
    "an empty table": ("", "CoLA/train.tsv", {"glue/CoLA/train.tsv": ""}),
    "a table that is not text": ("", "CoLA/train.tsv.*UTF-8", {"glue/CoLA/train.tsv": b"PK\x03\x04\xff\xfe" * 99}),
}, FINETUNE, reads_data=True)

# Other commands

add("_utils export_hf", {
    "an unknown option": ("model.pth out --vocav vocab.txt", "--vocav"),
    "no folder": ("model.pth", "OUT_DIR"),
    "an existing folder": ("model.pth pair", "pair'"),
    "a folder for a checkpoint": ("pair out", "'pair'"),
})
add("_utils convert_tf", {
    "an unknown part": ("tf out --part encoder", "--part.*'encoder'"),
    "no checkpoint": ("missing out --part generator", "'missing.index'"),
    "text for an index": ("tf out --part generator", "tf.index", {"tf.index": "text " * 99}),
    "cut values": ("tf out --part generator --hparams hparams.json", "tf.data-00000-of-00001",
                   {"tf.data-00000-of-00001": cut}),
    "hparams that are not JSON": ("tf out --part generator --hparams {size:small}", "--hparams '{size:small}'.*JSON"),
    "another vocabulary": ("tf out --part generator --vocab vocab.txt --hparams "
                           "hparams.json", "vocab.txt.*2000"),
})
add("_utils predict", {
    "no arguments": ("", "CHECKPOINT, FILE"),
    "a pretrained checkpoint": ("model.pth sentences.txt", "'model.pth'.*finetune.py"),
    "no sentences": ("cola.pth missing.txt", "'missing.txt'"),
    "two texts for one": ("cola.pth sentences.txt", "sentences.txt, line 2", {"sentences.txt": "One.\nOne.\tTwo.\n"}),
})
add("_utils glue_submission", {
    "no zip": ("missing.zip", "'missing.zip'"),
    "an empty folder": ("empty", "empty", {"empty/": ""}),
    "a zip that climbs out": ("a.zip", r"a.zip.*\.\./trapped", {"a.zip": file_of(climbing_zip)}),
})
add("_utils glue_results", {"no runs": ("", "finetune.py"),
                            "an unknown group": ("nobody", "'nobody'.*g", {SCORES: copy_of("scores.jsonl")})})
add("_utils minimal_pairs", {
    "no checkpoint": ("missing.pth pairs.jsonl", "'missing.pth'",
                      {"pairs.jsonl": '{"sentence_good": "a", "sentence_bad": "b"}'}),
    "broken JSON": ("model.pth pairs.jsonl", "pairs.jsonl, line 1", {"pairs.jsonl": '{"sentence_good": "a"'}),
    "a missing key": ("model.pth pairs.jsonl", "sentence_bad", {"pairs.jsonl": '{"sentence_good": "a", "bad": "b"}'}),
})
add("_utils replaced_tokens", {
    "no text": ("model.pth --generator model.pth --text missing.txt", "missing.txt"),
    "a wrong share": ("model.pth --generator model.pth --text text.txt --mask_prob 2", "mask_prob: 2"),
})
add("_utils export_notebooks", {"another folder": ("", "Pretrain.ipynb")})
add("benchmarks.pretraining", {"an unknown key": ("sise=tiny", "'sise.*size")})
add("benchmarks.loader", {"a wrong number": ("workers=two", "workers: 'two'.*numbers")})

# Damaged checkpoints, wherever one is read
DAMAGES = {"an empty": "", "a cut": cut, "a flipped": flip, "a trap for a": TRAP,
           "a trap of the old format for a": OLD_TRAP}
for command, kind, arguments, name, defaults in [
    ("pretrain.py", "pair", f"{PAIR}model.pth", "model.pth", CONTINUE),
    ("pretrain.py", "vocabulary", "vocab=model.pth", "model.pth", PRETRAIN),
    ("finetune.py", "checkpoint", "", "model.pth", FINETUNE),
    ("_utils export_hf", "checkpoint", "model.pth out", "model.pth", ()),
    ("_utils predict", "checkpoint", "cola.pth sentences.txt", "cola.pth", ()),
]:
    add(command, {f"{damage} {kind}": (arguments, f"'{name}'", {name: content})
                  for damage, content in DAMAGES.items()}, defaults)

# Cases of the default test suite: one of each kind. The others are slow.
QUICK = """
pretrain.py: a path for a name
pretrain.py: a missing device
pretrain.py: an unreachable hub
pretrain.py: JSON without text
pretrain.py: a cut pair
finetune.py: a flipped checkpoint
finetune.py: a folder with custom code
finetune.py: a folder with a trap
finetune.py: a damaged finished run
finetune.py: wrong labels
finetune.py: a cut row
_utils export_hf: an unknown option
_utils export_hf: an existing folder
_utils convert_tf: cut values
_utils predict: a trap for a checkpoint
_utils glue_submission: a zip that climbs out
_utils minimal_pairs: broken JSON
_utils replaced_tokens: a wrong share
benchmarks.loader: a wrong number
""".strip().split("\n")


# Running a case

def make_good_files(folder, checkpoint, glue):
    """Write valid inputs of the commands above into `folder`. checkpoint: of pretrain.py, size=tiny.   glue: a folder
    of all tables.
    """
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    (folder / "text.txt").write_text(ENGLISH * 20)
    (folder / "sentences.txt").write_text("A sentence.\nAnother one.\n")
    shutil.copy(checkpoint, folder / "model.pth")
    for task in ("CoLA", "RTE"):
        shutil.copytree(glue / task, folder / "glue" / task)
    pretrained = load_pretrained(str(checkpoint), "tiny")
    settings = {"max_length": 32, "bs": 4, "epochs": 1, "lr": 1e-3, "pretrained_weights": "none"}
    row = table_row("cola", settings=settings, scores={"validation": {"matthews": .5}}, synthetic=True)
    network = TASKS["cola"].head.network(pretrained, Settings(), finetune.SentencePredictor)
    save_finetuned(folder / "cola.pth", network, pretrained.hf_tokenizer, row)
    (folder / "scores.jsonl").write_text(json.dumps(asdict(row)) + "\n")
    google = GOLDEN / "official/micro_ckpt"
    (folder / "hparams.json").write_text(json.dumps(recorded(google / "config.json")["pretraining_hparams"]))
    for suffix in (".index", ".data-00000-of-00001"):
        shutil.copy(google / f"model.ckpt-200{suffix}", folder / f"tf{suffix}")
    export_hf(str(checkpoint), str(folder / "pair"))


def prepare(case, good, folder):
    """Copy the valid files to `folder` and replace those of the case."""
    shutil.copytree(good, folder)
    with contextlib.chdir(folder):
        for name, content in case.files.items():
            put(Path(name), content, is_folder=name.endswith("/"))


def put(path, content, is_folder):
    """Write or delete a file or folder; `content` as in Case.files."""
    if is_folder:
        shutil.rmtree(path, ignore_errors=True)
        if content is not None:
            path.mkdir()
    elif content is None:
        path.unlink()
    else:
        content = content(path.read_bytes() if path.is_file() else b"") if callable(content) else content
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def contents(folder):
    """{path: modification time} of all files and empty folders below a folder."""
    paths = (path for path in folder.rglob("*") if path.is_file() or not any(path.iterdir()))
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in paths}


def faults(case, done, before, after):
    """Descriptions of the faults in how a command failed; [] if there are none.

    before, after: `contents` of its folder.
    """
    last = done.stderr.rstrip().split("\n")[-1]
    changed = {path for path in before | after if before.get(path) != after.get(path)}
    of_data = r"datasets|datasets/(source_\w+\.txt|\.lock|(documents|examples)_\w+\.arrow)"
    prepared = re.compile(of_data if case.reads_data else "(?!)")
    found = {
        f"exit status {done.returncode}": done.returncode not in (1, 2),
        "a traceback": "Traceback" in done.stdout + done.stderr,
        "no error message at the end": not re.match(r"(python -m [\w ]+: )?error: \S", last),
        "more than one message, or a long one": len(last) > 600 or done.stderr.count("error: ") > 1,
        f"another message than {case.message}": not re.search(case.message, last),
        f"changed: {sorted(changed)}": not all(map(prepared.fullmatch, changed)),
    }
    return [fault for fault, is_present in found.items() if is_present]
