"""A table of invalid configurations, files and rows, and the folder of valid files in which each of them is tested."""
import contextlib
import gzip
import json
import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import NamedTuple

import pandas
import torch

import finetune
import pretrain
from _utils.config import complete
from _utils.glue.tasks import TASKS
from _utils.networks import load_pretrained
from _utils.runs.checkpoints import save_pretrained
from _utils.text.vocabulary import SPECIAL_TOKENS

ENGLISH = "The generator replaces some words of the text.\nThe discriminator finds every replaced word.\n\n"
JAPANESE = "吾輩は猫である。名前はまだ無い。\nどこで生れたかとんと見当がつかぬ。\n\n"
JSON_LINES = "".join(json.dumps({"text": f"Document {i} has nothing wrong with it."}) + "\n" for i in range(500))
LETTERS = [*"abcdefghijklmnopqrstuvwxyz.", *("##" + letter for letter in "abcdefghijklmnopqrstuvwxyz")]
WORDS = [*SPECIAL_TOKENS, *LETTERS]


class Case(NamedTuple):
    """A command with a mistake. expected: fragments of its error message.

    files: {name: content, a function from the valid file's bytes to the content, or None to delete the file}; a name that ends with /
    is an empty folder.
    reads_data: the mistake is in the text or the tables, so they are read and prepared files may be written; otherwise nothing may be
    written.
    """
    command: str
    arguments: list
    expected: list
    files: dict
    reads_data: bool


class Trap:
    """An object whose pickle creates a folder when it is loaded without weights_only."""

    def __reduce__(self):
        return os.mkdir, ("trapped",)


def first(n):
    return lambda content: content[:n]


def flip(content):
    """The content with inverted bytes in the middle, where the weights are."""
    middle = len(content) // 2
    return content[:middle] + bytes(255 - byte for byte in content[middle:middle + 64]) + content[middle + 64:]


def replace(old, new):
    return lambda content: content.replace(old.encode(), new.encode())


def file_of(write):
    """The bytes that `write(path)` writes to a file."""
    path = Path("temporary")
    write(path)
    content = path.read_bytes()
    path.unlink()
    return content


def trap(old_format=False):
    return lambda _: file_of(lambda path: torch.save({"model": Trap()}, path, _use_new_zipfile_serialization=not old_format))


def climbing_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../trapped", "x")


def changed(**changes):
    """A function that replaces some keys of a checkpoint; None removes a key."""
    def change(content):
        Path("changed.pth").write_bytes(content)
        whole = {**torch.load("changed.pth", weights_only=True), **changes}
        Path("changed.pth").unlink()
        return file_of(lambda path: torch.save({key: value for key, value in whole.items() if value is not None}, path))
    return change


def make_good_files(folder, checkpoint, glue):
    """Write valid inputs of the commands below into `folder`. checkpoint: of pretrain.py, size=tiny.   glue: a folder of all tables."""
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    (folder / "text.txt").write_text(ENGLISH * 20)
    (folder / "sentences.txt").write_text("A sentence.\nAnother one.\n")
    shutil.copy(checkpoint, folder / "model.pth")
    for task in ("CoLA", "RTE", "WSC"):
        shutil.copytree(glue / task, folder / "glue" / task)
    pretrained = load_pretrained(str(checkpoint), "tiny", 32)
    model = finetune.build_predictor(TASKS["cola"], pretrained)
    settings = {"wsc_trick": False, "max_length": 32, "bs": 4, "epochs": 1, "lr": 1e-3, "layer_decay": .8, "weight_decay": 0.,
                "schedule": "original_linear", "original_lr_layer_decays": True, "adam_bias_correction": False,
                "pretrained_weights": "none"}
    row = {"group": "g", "task": "cola", "run": 0, "seed": 0, "scores": {"validation": {"matthews": .5}}, "settings": settings,
           "train_rows": 9, "synthetic": True}
    finetune.save_finetuned(folder / "cola.pth", model, pretrained.hf_tokenizer, row)
    (folder / "scores.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "hparams.json").write_text(json.dumps({
        "vocab_size": 2000, "embedding_size": 16, "generator_hidden_size": .5,
        "model_hparam_overrides": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}}))
    for suffix in (".index", ".data-00000-of-00001"):
        shutil.copy(Path(__file__).parents[1] / f"golden/official/micro_ckpt/model.ckpt-200{suffix}", folder / f"tf{suffix}")
    networks = pretrain.build_model(complete(pretrain.c.override(["quickstart=True"])), pretrained.hf_tokenizer)
    for part in ("generator", "discriminator"):
        getattr(networks, part).save_pretrained(folder / "pair" / part)
        pretrained.hf_tokenizer.save_pretrained(folder / "pair" / part)
    mlm = complete(pretrain.c.override(["size=bert_tiny"]))
    save_pretrained(folder / "mlm.pth", pretrain.build_model(mlm, pretrained.hf_tokenizer), mlm, pretrained.hf_tokenizer, step=0)


PRETRAIN = {"size": "tiny", "datas": "text.txt", "vocab": "vocab.txt", "steps": "2", "bs": "4", "num_workers": "0", "device": "cpu",
            "logger": "None"}
FINETUNE = {"size": "tiny", "pretrained_checkpoint": "model.pth", "glue_dir": "glue", "tasks": "cola", "end": "1", "max_length": "32",
            "device": "cpu", "logger": "None", "group_name": "g"}
PAIR = "vocab= lr=1e-3 warmup_steps=1 "  # `vocab=` removes the default
CASES = {}


def _case(name, command, arguments, expected, files=None, reads_data=False):
    assert name not in CASES, name
    CASES[name] = Case(command, arguments, expected, files or {}, reads_data)


def _with_defaults(defaults, arguments):
    given = arguments.split() if isinstance(arguments, str) else arguments
    replaced = {argument.partition("=")[0] for argument in given}
    return [*(f"{key}={value}" for key, value in defaults.items() if key not in replaced),
            *(argument for argument in given if argument != "vocab=")]


def pretraining(name, arguments, expected, files=None, reads_data=False):
    _case(f"pretrain: {name}", "pretrain.py", _with_defaults(PRETRAIN, arguments), expected, files, reads_data)


def finetuning(name, arguments, expected, files=None, reads_data=False):
    _case(f"finetune: {name}", "finetune.py", _with_defaults(FINETUNE, arguments), expected, files, reads_data)


def module(command, name, arguments, expected, files=None):
    _case(f"{command.removeprefix('_utils ')}: {name}", command, arguments.split(), expected, files)


# Keys and values; test_config.py has more of them.
for arguments, expected in {
    "stpes=100": ["'stpes'", "'steps'"],
    "--lr=3": ["'--lr'", "'lr'"],
    "lr": ["'lr'", "key=value", "--help"],
    "=3": ["''"],
    f"steps={'9' * 5000}": ["steps: '999", "an integer"],
    f"{'x' * 5000}=1": ["'xxx", "size"],
    "lr=[": ["lr: '['", "a number above 0"],
    "lr=1e-4 lr=2e-4": ["lr=1e-4", "lr=2e-4"],
    "size=tyni": ["size: 'tyni'", "'tiny'"],
    "initial_weights=offical": ["initial_weights: 'offical'", "'official'"],
    "device=cuda:99": ["'cuda:99'", "device=cpu"],
    "steps=0": ["steps: '0'", "an integer"],
    "lr=nan": ["lr: 'nan'", "a number above 0"],
    "warmup_steps=3": ["warmup_steps=3", "steps=2"],
    "stop_at=3": ["stop_at=3", "steps=2"],
    "micro_batch=3": ["micro_batch=3", "bs=4"],
    "micro_batch=8": ["micro_batch=8", "bs=4"],
    "base_run_name=../x": ["base_run_name: '../x'", "a name"],
    "upload_to=nowhere://x": ["upload_to: 'nowhere://x'", "a folder"],
    "upload_to=text.txt": ["upload_to: 'text.txt'", "a folder"],
}.items():
    pretraining(arguments[:40], arguments, expected)

# Networks.
def electra(**sizes):
    shape = {"model_type": "electra", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 64}
    return f"{ {**shape, **sizes} }"


SHORT_BERT = {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 1, "max_position_embeddings": 32}
for name, arguments, expected in [
    ("an unknown family", ["generator={'model_type': 'elektra'}"], ["elektra", "model_type"]),
    ("a family without the head", ["generator={'model_type': 'gpt2'}"], ["gpt2", "another family"]),
    ("no family", ["generator={'hidden_size': 64}"], ["hidden_size", "config.json"]),
    ("a number", ["generator=5"], ["Invalid network configuration: '5'", "config.json"]),
    ("heads that do not divide", [f"discriminator={electra(num_attention_heads=5)}"], ["(64)", "heads (5)"]),
    ("a negative width", [f"discriminator={electra(hidden_size=-64)}"], ["discriminator", "electra configuration"]),
    ("a string for a width", [f"discriminator={electra(hidden_size='wide')}"], ["hidden_size"]),
    ("an unknown size", [f"discriminator={electra(width=64)}"], ["'width'", "hidden_size"]),
    ("other embeddings", [f"discriminator={electra(embedding_size=32)}"], ["tying='embeddings' is not possible"]),
    ("too few positions", ["max_length=64", f"generator={SHORT_BERT}", f"discriminator={SHORT_BERT}"], ["max_length=64", "32 positions"]),
    ("no folder of a network", ["generator=./networks/a"], ["./networks/a", "a folder with a config.json"]),
    ("two networks for one", ["objective=mlm", f"discriminator={electra()}"], ["discriminator=", "objective='mlm'"]),
    ("a missing discriminator", ["size=bert_tiny", "objective=electra"], ["size=bert_tiny", "no discriminator"]),
]:
    pretraining(name, arguments, expected)

# Text.
PARQUET = pandas.DataFrame({"text": ["Some text."] * 5}).to_parquet()
pretraining("a missing path", "datas=texts/*.txt", ["'texts/*.txt'", "openwebtext, wikipedia, bookcorpus, docs"])
pretraining("a missing path after a valid one", "datas=text.txt,missing.txt", ["'missing.txt'", "not a file"])
pretraining("an empty folder", "datas=empty", ["'empty'. The folder is empty"], {"empty/": ""})
pretraining("a folder without text", "datas=folder", ["'folder'", ".txt, .jsonl, .parquet"], {"folder/a.md": "x"})
pretraining("an unknown kind of file", "datas=text.docx", ["'text.docx'", ".txt, .jsonl, .parquet"], {"text.docx": "x"})
pretraining("a misspelt corpus", "datas=openwebtxt", ["'openwebtxt'", "openwebtext"])
pretraining("an unreachable hub", "datas=openwebtext", ["'openwebtext'", "python pretrain.py quickstart=True"])
for name, file, content, expected in [
    ("an empty file", "a.txt", "", ["'a.txt'", "no text"]),
    ("an image", "a.txt", b"\x89PNG\r\n\x1a\n\x00\xff\xfe" * 9, ["a.txt is not utf-8"]),
    ("zero bytes", "a.txt", bytes(1000), ["a.txt", "no text"]),
    ("latin-1", "a.txt", b"caf\xe9 au lait\n", ["a.txt is not utf-8", "encoding=latin-1"]),
    ("no JSON", "a.jsonl", JSON_LINES + "{'text': 1}", ["a.jsonl, line 501", '"text"']),
    ("JSON without text", "a.jsonl", JSON_LINES + '{"body": ""}', ["a.jsonl, line 501", '"text"']),
    ("no text column", "a.parquet", pandas.DataFrame({"body": ["x"]}).to_parquet(), ['a.parquet has no column "text"', "body"]),
    ("a cut parquet", "a.parquet", PARQUET[:-20], ["a.parquet cannot be read"]),
    ("a damaged parquet", "a.parquet", PARQUET[:8] + bytes(40) + PARQUET[48:], ["a.parquet cannot be read"]),
    ("a cut gz", "a.txt.gz", gzip.compress(ENGLISH.encode())[:-20], ["a.txt.gz cannot be read"]),
    ("one line", "a.txt", "word " * 200_000, ["a.txt", "line break"]),
    ("a foreign language", "a.txt", JAPANESE * 20, ["a.txt", "not in the vocabulary"]),
    ("one word", "a.txt", "a", ["yields only 1 training examples", "bs=4"]),
]:
    pretraining(name, f"datas={file}", expected, {file: content}, reads_data=True)
pretraining("too little for line pairs", "examples=line_pairs", ["text.txt has 3 documents", "examples=electra"], {"text.txt": ENGLISH * 3},
            reads_data=True)

# Vocabulary.
for name, vocab, expected, files in [
    ("no vocabulary", "words.txt", ["words.txt", "File not found"], {}),
    ("without [MASK]", "words.txt", ["words.txt", "lacks [MASK]"], {"words.txt": "\n".join(word for word in WORDS if word != "[MASK]")}),
    ("a word twice", "words.txt", ["words.txt", "'twice'"], {"words.txt": "\n".join([*WORDS, "twice", "once", "twice"])}),
    ("an empty vocabulary", "words.txt", ["words.txt", "[MASK]"], {"words.txt": ""}),
    ("a vocabulary that is not text", "words.txt", ["words.txt", "UTF-8"], {"words.txt": b"\xff\xfe\x00"}),
    ("text for a vocabulary", "text.txt", ["text.txt", "twice"], {}),
    ("a folder without a tokenizer", "folder", ["'folder'", "no tokenizer"], {"folder/config.json": "{}"}),
    ("a damaged tokenizer", "pair", ["pair", "vocab=PATH/vocab.txt"], {"pair/discriminator/tokenizer.json": first(99)}),
    ("a misspelt hub id", "google/elektra", ["'google/elektra'", "vocab=PATH/vocab.txt"], {}),
    ("too small a vocabulary", "10", ["vocab: '10'", "at least 200"], {}),
    ("a missing checkpoint as vocabulary", "words.pth", ["'words.pth'", "Checkpoint not found"], {}),
    ("a vocabulary in a damaged checkpoint", "model.pth", ["model.pth", "Cannot read the checkpoint"], {"model.pth": first(5000)}),
]:
    pretraining(name, f"vocab={vocab}", expected, files)

# Pairs for continued pretraining.
for name, start, expected, files in [
    ("no pair", "missing.pth", ["'missing.pth'", "Checkpoint not found"], {}),
    ("text for a checkpoint", "model.pth", ["model.pth", "Cannot read the checkpoint"], {"model.pth": "weights\n" * 99}),
    ("a cut checkpoint", "model.pth", ["model.pth", "Cannot read the checkpoint"], {"model.pth": first(50_000)}),
    ("a flipped checkpoint", "model.pth", ["model.pth"], {"model.pth": flip}),
    ("an empty checkpoint", "model.pth", ["model.pth", "Cannot read the checkpoint"], {"model.pth": ""}),
    ("a trap", "model.pth", ["model.pth", "contains more than data"], {"model.pth": trap()}),
    ("a trap of the old format", "model.pth", ["model.pth", "contains more than data"], {"model.pth": trap(old_format=True)}),
    ("a folder without generator", "pair", ["'pair' has no folder generator/"], {"pair/generator/": None}),
    ("a folder with a trap", "pair", ["pair/generator", "Cannot load"],
     {"pair/generator/model.safetensors": None, "pair/generator/pytorch_model.bin": trap()}),
    ("cut weights in a folder", "pair", ["pair/discriminator", "Cannot load"],
     {"pair/discriminator/model.safetensors": first(9999)}),
    ("weights that do not fit", "pair", ["pair/discriminator"],
     {"pair/discriminator/config.json": replace('"intermediate_size": 512', '"intermediate_size": 256')}),
    ("a tokenizer that does not fit", "pair", ["The tokenizer of 'pair' has 9058 tokens", "trained with"],
     {"pair/discriminator/tokenizer.json": None, "pair/discriminator/vocab.txt": "\n".join([*WORDS, *map(str, range(9000))])}),
    ("a finetuned checkpoint", "cola.pth", ["'cola.pth' is not a checkpoint of pretrain.py"], {}),
    ("a masked language model", "mlm.pth", ["'mlm.pth' has no discriminator"], {}),
    ("a checkpoint with nonsense", "model.pth", ["model.pth"], {"model.pth": changed(discriminator_config={"model_type": "nonsense"})}),
    ("a checkpoint without weights", "model.pth", ["model.pth", "do not fit"], {"model.pth": changed(model={})}),
    ("a checkpoint with a number for its weights", "model.pth", ["model.pth"], {"model.pth": changed(model=5)}),
    ("a checkpoint with a number for its tokenizer", "model.pth", ["model.pth", "not a checkpoint of pretrain.py"],
     {"model.pth": changed(tokenizer=5)}),
]:
    pretraining(f"start from {name}", f"{PAIR}initial_weights={start}", expected, files)
pretraining("a pair without a schedule", "vocab= initial_weights=model.pth", ["initial_weights='model.pth'", "Set lr"])
pretraining("a pair of another size", f"{PAIR}initial_weights=model.pth size=small", ["'model.pth'", "Set size=tiny"])
pretraining("a pair and a vocabulary", "initial_weights=model.pth lr=1e-3 warmup_steps=1",
            ["initial_weights='model.pth'", "vocab='vocab.txt'"])
pretraining("a checkpoint of the same run", f"{PAIR}initial_weights=vanilla_11081_50.0%.pth", ["vanilla_11081", "another base_run_name"])
pretraining("a file for a folder of datasets", "", ["datasets", "is a file"], {"datasets": "x"})
pretraining("a file for a folder of checkpoints", "", ["checkpoints", "is a file"], {"checkpoints": "x"})

# Finetuning: keys and values.
for arguments, expected in {
    "stpes=100": ["'stpes'", "size"],
    "tasks=cola,sst": ["tasks: 'cola,sst'", "sst2"],
    "tasks=cola,cola": ["tasks", "'cola'"],
    "start=3": ["start=3", "end=1"],
    "seeds=1 end=2": ["seeds", "1 entries"],
    "end=2 end=3": ["end=2", "end=3"],
    "group_name=../x": ["group_name: '../x'", "a name"],
    "th_run={'cola':0,'rte':3}": ["th_run", "'rte'", "cola"],
    "task_overrides={'rte':{'batch':3}}": ["task_overrides", "'bs'"],
    "size=small": ["model.pth", "size=tiny"],
    "device=cuda:99": ["'cuda:99'", "device=cpu"],
    "glue_dir=nowhere": ["glue_dir: 'nowhere'", "not a folder"],
    "glue_dir=text.txt": ["glue_dir: 'text.txt'", "not a folder"],
    "do_finetune=False": ["'g'", "do_finetune=True"],
    "do_finetune=False th_run=99": ["'g'", "do_finetune=True"],
    "tasks=wnli wsc_trick=True wsc_dir=nowhere": ["nowhere/train.jsonl", "wsc_dir=PATH"],
}.items():
    finetuning(arguments[:40], arguments, expected)

# Pretrained checkpoints to finetune.
TRAP_CONFIG = json.dumps({"model_type": "trap", "auto_map": {"AutoConfig": "trap.Trap", "AutoModel": "trap.Trap"}})
TRAP_CODE = "import os\nos.mkdir('trapped')\nclass Trap: pass\n"
for name, model, expected, files in [
    ("no checkpoint", "missing.pth", ["'missing.pth'", "Checkpoint not found"], {}),
    ("a cut checkpoint", "model.pth", ["model.pth", "Cannot read the checkpoint"], {"model.pth": first(50_000)}),
    ("a flipped checkpoint", "model.pth", ["model.pth"], {"model.pth": flip}),
    ("an empty checkpoint", "model.pth", ["model.pth", "Cannot read the checkpoint"], {"model.pth": ""}),
    ("a trap", "model.pth", ["model.pth", "contains more than data"], {"model.pth": trap()}),
    ("a finetuned checkpoint", "cola.pth", ["'cola.pth' is not a checkpoint of pretrain.py"], {}),
    ("a checkpoint of nonsense", "model.pth", ["model.pth"], {"model.pth": changed(discriminator_config={"model_type": "nonsense"})}),
    ("a checkpoint with a number for its configuration", "model.pth", ["model.pth"], {"model.pth": changed(config=5)}),
    ("a pair", "pair", ["'pair' contains two networks", "discriminator"], {}),
    ("no folder", "./nothing", ["Folder not found: './nothing'"], {}),
    ("an empty folder", "empty", ["'empty'", "transformers folder"], {"empty/": ""}),
    ("a folder with custom code", "trap", ["'trap'"], {"trap/config.json": TRAP_CONFIG, "trap/trap.py": TRAP_CODE}),
    ("a folder with a trap", "pair/discriminator", ["pair/discriminator"],
     {"pair/discriminator/model.safetensors": None, "pair/discriminator/pytorch_model.bin": trap()}),
    ("a folder without weights", "pair/discriminator", ["pair/discriminator", "its weights or its tokenizer are missing"],
     {"pair/discriminator/model.safetensors": None}),
    ("a misspelt hub id", "google/elektra", ["'google/elektra'", "quickstart=True"], {}),
]:
    finetuning(f"from {name}", f"pretrained_checkpoint={model}", expected, files)
finetuning("runs from MNLI without one", "tasks=rte start_from_mnli=True", ["start_from_mnli", "MNLI run in the group 'g'"],
           reads_data=True)
finetuning("runs of another group's MNLI", "tasks=rte start_from_mnli=nobody", ["the group 'nobody'", "Add mnli"], reads_data=True)
finetuning("a run that will not exist", "th_run=99", ["th_run names run 99 of cola", "finetune it"], reads_data=True)
finetuning("a damaged table of runs", "", ["scores.jsonl, line 1", "Delete that line"], {"checkpoints/glue/scores.jsonl": "nonsense\n"},
           reads_data=True)
finetuning("a table of runs with nonsense", "", ["scores.jsonl, line 1", "Delete that line"],
           {"checkpoints/glue/scores.jsonl": lambda _: Path("scores.jsonl").read_bytes()
            .replace(b'"settings": {', b'"settings": 5, "x": {')},
           reads_data=True)
finetuning("a damaged finished run", "do_finetune=False", ["checkpoints/glue/g_cola_0.pth", "Cannot read the checkpoint"],
           {"checkpoints/glue/scores.jsonl": lambda _: Path("scores.jsonl").read_bytes(), "checkpoints/glue/g_cola_0.pth": "x"},
           reads_data=True)
finetuning("a file for a folder of checkpoints", "", ["checkpoints", "is a file"], {"checkpoints": "x"})
finetuning("a file for a folder of test files", "", ["test_outputs", "is a file"], {"test_outputs": "x"})

# Own tasks.
for name, task, expected, files in [
    ("without a training file", {"test": "own.csv"}, ["train: None"], {}),
    ("an Unknown key:", {"train": "own.csv", "lable": "x"}, ["unknown key 'lable'", "Did you mean 'label'?"], {}),
    ("a missing file", {"train": "own.csv"}, ["File not found: 'own.csv'"], {}),
    ("another format", {"train": "own.xlsx"}, ["'own.xlsx'", ".csv"], {"own.xlsx": "x"}),
    ("a missing column", {"train": "own.csv"}, ["own.csv: missing column 'label'", "text, stars"], {"own.csv": "text,stars\nGood,5\n"}),
    ("one label", {"train": "own.csv"}, ["own.csv: all labels are '5'"], {"own.csv": "text,label\nGood,5\nFine,5\n"}),
    ("a cut row", {"train": "own.csv"}, ["own.csv, line 4: 1 columns instead of 2"], {"own.csv": "text,label\nGood,5\nBad,1\nFi"}),
    ("a cut word", {"train": "own.txt"}, ["own.txt, line 3: 1 columns instead of 2"], {"own.txt": "The O\nserver B\nrea"}),
    ("binary data", {"train": "own.csv"}, ["own.csv, line 1 is not UTF-8"], {"own.csv": bytes(range(128, 256))}),
    ("damaged parquet", {"train": "own.parquet"}, ["own.parquet is not a readable parquet file"], {"own.parquet": "x"}),
]:
    finetuning(f"own task, {name}", [f"tasks={task}"], expected, files, reads_data=True)

# Tables.
for name, arguments, file, content, expected in [
    ("without tables", "tasks=mrpc", "glue/CoLA/", None, ["mrpc", "glue_dir=PATH"]),
    ("a missing column", "tasks=rte", "glue/RTE/train.tsv", replace("sentence2\t", "premise\t"), ["RTE/train.tsv, line 1", "'sentence2'"]),
    ("wrong labels", "tasks=rte", "glue/RTE/dev.tsv", replace("entailment\n", "entails\n"),
     ["RTE/dev.tsv, line ", "'not_entails'", "not_entailment"]),
    ("an empty table", "", "glue/CoLA/train.tsv", "", ["CoLA/train.tsv, line 1: 1 columns instead of 4"]),
    ("a header alone", "tasks=rte", "glue/RTE/train.tsv", lambda content: content.split(b"\n")[0] + b"\n",
     ["RTE/train.tsv", "a header but no rows"]),
    ("a cut test file", "tasks=rte", "glue/RTE/test.tsv", lambda content: content[:content.rindex(b"\t")],
     ["RTE/test.tsv, line ", "Every row of a test set"]),
    ("a zip for a table", "", "glue/CoLA/train.tsv", b"PK\x03\x04\xff\xfe" * 99, ["CoLA/train.tsv, line 1", "UTF-8"]),
    ("commas for tabs", "tasks=rte", "glue/RTE/train.tsv", replace("\t", ","), ["RTE/train.tsv, line 1", "missing column"]),
    ("broken JSON of WSC", "tasks=wnli wsc_trick=True", "glue/WSC/train.jsonl", replace("{", "["), ["WSC/train.jsonl, line 1"]),
    ("latin-1 of WSC", "tasks=wnli wsc_trick=True", "glue/WSC/val.jsonl", b"\xe9", ["WSC/val.jsonl", "UTF-8"]),
    ("WSC without spans", "tasks=wnli wsc_trick=True", "glue/WSC/val.jsonl", replace("span1_text", "span"),
     ["WSC/val.jsonl, line 1", "span1_text"]),
]:
    finetuning(f"tables {name}", arguments, expected, {file: content}, reads_data=True)

# The other commands.
EXPORT, CONVERT, PREDICT, SUBMIT = "_utils export_hf", "_utils convert_tf", "_utils predict", "_utils glue_submission"
for name, arguments, expected, files in [
    ("no arguments", "", ["CKPT, OUT_DIR"], {}),
    ("no folder", "model.pth", ["OUT_DIR"], {}),
    ("an unknown option", "model.pth out --vocav vocab.txt", ["--vocav"], {}),
    ("no checkpoint", "missing.pth out", ["'missing.pth'", "Checkpoint not found"], {}),
    ("a folder for a checkpoint", "pair out", ["'pair' is a folder", ".pth"], {}),
    ("an existing folder", "model.pth pair", ["pair' already exists", "a new or an empty folder"], {}),
    ("a file for a folder", "model.pth text.txt", ["text.txt' already exists", "a new or an empty folder"], {}),
    ("text for a checkpoint", "text.txt out", ["text.txt", "Cannot read the checkpoint"], {}),
    ("a cut checkpoint", "model.pth out", ["model.pth", "Cannot read the checkpoint"], {"model.pth": first(50_000)}),
    ("a trap", "model.pth out", ["model.pth", "contains more than data"], {"model.pth": trap()}),
    ("an unneeded vocabulary", "model.pth out --vocab vocab.txt", ["model.pth", "Leave --vocab out"], {}),
    ("another program's checkpoint", "model.pth out", ["model.pth", "not written by pretrain.py"], {"model.pth": changed(model=None)}),
    ("damaged metrics", "m_100.0%.pth out", ["m/metrics.jsonl, line 1", "Delete that line"],
     {"m_100.0%.pth": lambda _: Path("model.pth").read_bytes(), "m/metrics.jsonl": "nonsense"}),
    ("a finetuned one of an unknown task", "cola.pth out", ["cola.pth"], {"cola.pth": changed(run={"task": "nonsense"})}),
    ("a finetuned one with a number for its run", "cola.pth out", ["cola.pth"], {"cola.pth": changed(run=5)}),
    ("a finetuned one without weights", "cola.pth out", ["cola.pth"], {"cola.pth": changed(model={})}),
]:
    module(EXPORT, name, arguments, expected, files)
for name, arguments, expected, files in [
    ("no arguments", "", ["CKPT_PREFIX"], {}),
    ("no part", "tf out", ["--part"], {}),
    ("an unknown part", "tf out --part encoder", ["--part", "'encoder'"], {}),
    ("no checkpoint", "missing out --part generator", ["'missing.index'", "without its extension"], {}),
    ("text for an index", "tf out --part generator", ["tf.index", "Download it again"], {"tf.index": "text " * 99}),
    ("cut values", "tf out --part generator --hparams hparams.json", ["tf.data-00000-of-00001 is truncated", "Download it again"],
     {"tf.data-00000-of-00001": first(9999)}),
    ("no values", "tf out --part generator --hparams hparams.json", ["tf.data-00000-of-00001"], {"tf.data-00000-of-00001": None}),
    ("hparams that are not JSON", "tf out --part generator --hparams {size:small}", ["--hparams '{size:small}'", "JSON"], {}),
    ("hparams in a missing file", "tf out --part generator --hparams none.json", ["--hparams 'none.json'", "file"], {}),
    ("hparams that are a list", "tf out --part generator --hparams list.json", ["--hparams 'list.json'", "model_size"],
     {"list.json": "[1]"}),
    ("hparams of nonsense", 'tf out --part generator --hparams {"model_hparam_overrides":5}', ["--hparams"], {}),
    ("hparams that are not text", "tf out --part generator --hparams bytes.json", ["--hparams 'bytes.json'"], {"bytes.json": b"\xff"}),
    ("no vocabulary", "tf out --part generator --vocab none.txt --hparams hparams.json", ["none.txt cannot be read"], {}),
    ("another vocabulary", "tf out --part generator --vocab words.txt --hparams hparams.json", ["words.txt has", "the checkpoint has 2000"],
     {"words.txt": "\n".join(WORDS)}),
    ("an existing folder", "tf pair --part generator", ["pair' already exists", "a new or an empty folder"], {}),
]:
    module(CONVERT, name, arguments, expected, files)
for command, name, arguments, expected, files in [
    (PREDICT, "no arguments", "", ["Pass a checkpoint and a file"], {}),
    (PREDICT, "no checkpoint", "missing.pth sentences.txt", ["'missing.pth'", "Finetuned checkpoint not found"], {}),
    (PREDICT, "a pretrained checkpoint", "model.pth sentences.txt", ["'model.pth' is not a checkpoint written by finetune.py"], {}),
    (PREDICT, "a cut checkpoint", "cola.pth sentences.txt", ["cola.pth", "Cannot read the checkpoint"], {"cola.pth": first(9999)}),
    (PREDICT, "a trap", "cola.pth sentences.txt", ["cola.pth", "contains more than data"], {"cola.pth": trap()}),
    (PREDICT, "no sentences", "cola.pth missing.txt", ["File not found: 'missing.txt'"], {}),
    (PREDICT, "a folder for sentences", "cola.pth pair", ["'pair'"], {}),
    (PREDICT, "two texts for one", "cola.pth sentences.txt", ["sentences.txt, line 2", "one sentence"],
     {"sentences.txt": "One.\nOne.\tTwo.\n"}),
    (PREDICT, "an empty file", "cola.pth sentences.txt", ["sentences.txt, line 1", "one sentence"], {"sentences.txt": ""}),
    (SUBMIT, "no arguments", "", ["Pass a zip or a folder"], {}),
    (SUBMIT, "no zip", "missing.zip", ["File not found: 'missing.zip'"], {}),
    (SUBMIT, "text for a zip", "text.txt", ["text.txt is not a readable zip"], {}),
    (SUBMIT, "an empty folder", "empty", ["empty lacks", "all eleven"], {"empty/": ""}),
    (SUBMIT, "a zip that climbs out", "a.zip", ["a.zip", "../trapped"], {"a.zip": lambda _: file_of(climbing_zip)}),
    ("_utils glue_results", "no runs", "", ["No finished run", "python finetune.py"], {}),
    ("_utils glue_results", "an unknown group", "nobody", ["'nobody'", "Choose from g"],
     {"checkpoints/glue/scores.jsonl": lambda _: Path("scores.jsonl").read_bytes()}),
    ("_utils export_notebooks", "an unknown option", "--chekc", ["--chekc", "--check"], {}),
    ("_utils export_notebooks", "another folder", "", ["File not found: Pretrain.ipynb", "root folder"], {}),
    ("benchmarks.pretraining", "an unknown key", "sise=tiny", ["'sise", "size"], {}),
    ("benchmarks.pretraining", "an unknown size", "size=huge", ["for size: 'huge'", "'tiny'"], {}),
    ("benchmarks.pretraining", "no rounds", "size=tiny rounds=0", ["rounds: '0'", "an integer"], {}),
    ("benchmarks.pretraining", "an unknown device", "size=tiny device=gpu", ["for device: 'gpu'", "'cuda'"], {}),
    ("benchmarks.loader", "a string for workers", "workers=two", ["workers: 'two'", "numbers"], {}),
    ("benchmarks.loader", "too few examples", "examples=10", ["examples=10", "bs=128"], {}),
    ("benchmarks.preprocessing", "no text", "datas=missing.txt", ["'missing.txt'", "not a file"], {}),
]:
    module(command, name, arguments, expected, files)

# Cases of the default test suite; the others are slow.
QUICK = [
    "pretrain: stpes=100", "pretrain: lr=1e-4 lr=2e-4", "pretrain: size=tyni", "pretrain: lr=nan", "pretrain: base_run_name=../x",
    "pretrain: device=cuda:99", "pretrain: heads that do not divide",
    "pretrain: a missing path after a valid one", "pretrain: an unreachable hub",
    "pretrain: JSON without text", "pretrain: without [MASK]", "pretrain: start from a trap", "pretrain: start from a cut checkpoint",
    "finetune: tasks=cola,sst", "finetune: th_run={'cola':0,'rte':3}", "finetune: from a flipped checkpoint",
    "finetune: from a folder with custom code", "finetune: from a folder with a trap",
    "finetune: tables wrong labels", "finetune: do_finetune=False", "finetune: own task, a cut row",
    "export_hf: an existing folder", "convert_tf: cut values", "predict: a trap",
    "glue_submission: a zip that climbs out", "benchmarks.loader: a string for workers",
]


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
    lines = done.stderr.rstrip().split("\n")
    last = lines[-1]
    missing = [fragment for fragment in case.expected if fragment not in last]
    written = sorted(path for path in after if after[path] != before.get(path)) + sorted(set(before) - set(after))
    prepared = re.compile(r"datasets|datasets/(sources\.json|(documents|examples)_\w+\.arrow(\.xxh3)?)" if case.reads_data else "(?!)")
    found = {
        f"exit status {done.returncode}": done.returncode not in (1, 2),
        "a traceback": "Traceback" in done.stdout + done.stderr,
        "no error message at the end": not re.match(r"(python -m \S+: )?error: \S", last),
        "more than one message, or a long one": len(last) > 600 or sum("error: " in line for line in lines) > 1,
        f"missing in the message: {missing}": bool(missing),
        f"written: {written}": not all(prepared.fullmatch(path) for path in written),
    }
    return [fault for fault, is_present in found.items() if is_present]
