"""The table of wrong configurations, files and rows, and the folder of good files in which each is tried."""
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
from _utils.networks.pretrained import load_pretrained
from _utils.pretraining_data.vocabulary import SPECIAL_TOKENS
from _utils.run_files.checkpoints import save_pretrained

ENGLISH = "The generator replaces some words of the text.\nThe discriminator finds every replaced word.\n\n"
JAPANESE = "吾輩は猫である。名前はまだ無い。\nどこで生れたかとんと見当がつかぬ。\n\n"
JSON_LINES = "".join(json.dumps({"text": f"Document {i} has nothing wrong with it."}) + "\n" for i in range(500))
LETTERS = [*"abcdefghijklmnopqrstuvwxyz.", *("##" + letter for letter in "abcdefghijklmnopqrstuvwxyz")]
WORDS = [*SPECIAL_TOKENS, *LETTERS]


class Case(NamedTuple):
    """A wrong command. named: what its sentence must say.

    files: {name: content, or a function that makes it of the good one's bytes; None: there is no such file}; with a / an empty folder.
    reads_data: the mistake is one of the text or the tables, which therefore are read; otherwise nothing may be written at all.
    """
    command: str
    arguments: list
    named: list
    files: dict
    reads_data: bool


class Trap:
    """Pickled, it makes a file where it is unpickled by a reader that runs what it reads."""

    def __reduce__(self):
        return os.mkdir, ("trapped",)


def first(n):
    return lambda content: content[:n]


def flip(content):
    """The content with bytes changed in its middle, where the weights are."""
    middle = len(content) // 2
    return content[:middle] + bytes(255 - byte for byte in content[middle:middle + 64]) + content[middle + 64:]


def replace(old, new):
    return lambda content: content.replace(old.encode(), new.encode())


def file_of(write):
    """The bytes of the file that a function of its path writes."""
    path = Path("being made")
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
    """A checkpoint with other values of some of its keys; None: without the key."""
    def change(content):
        Path("changed.pth").write_bytes(content)
        whole = {**torch.load("changed.pth", weights_only=True), **changes}
        Path("changed.pth").unlink()
        return file_of(lambda path: torch.save({key: value for key, value in whole.items() if value is not None}, path))
    return change


def make_good_files(folder, checkpoint, glue):
    """Write into `folder` what the commands below take when nothing is wrong. checkpoint: of pretrain.py, tiny; glue: all tables."""
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
PAIR = "vocab= lr=1e-3 warmup_steps=1 "  # an empty default is left out
CASES = {}


def _case(name, command, arguments, named, files=None, reads_data=False):
    assert name not in CASES, name
    CASES[name] = Case(command, arguments, [named] if isinstance(named, str) else named, files or {}, reads_data)


def _with_defaults(defaults, arguments):
    given = arguments.split() if isinstance(arguments, str) else arguments
    replaced = {argument.partition("=")[0] for argument in given}
    return [*(f"{key}={value}" for key, value in defaults.items() if key not in replaced),
            *(argument for argument in given if argument != "vocab=")]


def pretraining(name, arguments, named, files=None, reads_data=False):
    _case(f"pretrain: {name}", "pretrain.py", _with_defaults(PRETRAIN, arguments), named, files, reads_data)


def finetuning(name, arguments, named, files=None, reads_data=False):
    _case(f"finetune: {name}", "finetune.py", _with_defaults(FINETUNE, arguments), named, files, reads_data)


def module(command, name, arguments, named, files=None):
    _case(f"{command.removeprefix('_utils.')}: {name}", command, arguments.split(), named, files)


# Keys and values.
for words, said in {
    "stpes=100": ["'stpes'", "did you mean 'steps'?"],
    "--lr=3": ["'--lr'", "did you mean 'lr'?"],
    "--help": ["'--help' is not of the form key=value", "first cell"],
    "lr": ["'lr' is not of the form key=value"],
    "=3": ["unknown key ''"],
    f"steps={'9' * 5000}": ["steps='999", "from 1 to"],
    f"{'x' * 5000}=1": ["unknown key 'xxx", "the keys are"],
    "steps=(1,2)": ["steps=(1, 2)", "a whole number"],
    "lr=[": ["lr='['", "a number above 0"],
    "lr=1e-4 lr=2e-4": ["lr is given twice", "lr=1e-4", "lr=2e-4"],
    "size=tyni": ["size='tyni'", "'tiny'"],
    "schedule=linear": ["schedule='linear'", "'original_linear'"],
    "optimizer=sgd": ["optimizer='sgd'", "'lamb'"],
    "sampling=gumbel": ["sampling='gumbel'", "'fp32_gumbel'"],
    "masking=offical": ["masking='offical'", "'official'"],
    "electra_mask_style=never": ["electra_mask_style='never'", "'always'"],
    "objective=rtd": ["objective='rtd'", "'electra'"],
    "tying=all": ["tying='all'", "'embeddings'"],
    "precision=fp8": ["precision='fp8'", "'bf16'"],
    "logger=wandB": ["logger='wandB'", "'wandb'"],
    "examples=linepairs": ["examples='linepairs'", "'line_pairs'"],
    "clean=yes": ["clean='yes'", "True"],
    "initial_weights=offical": ["initial_weights='offical'", "'official'"],
    "quickstart=yes": ["quickstart='yes'", "True or False"],
    "device=gpu": ["device='gpu'", "'cuda'"],
    "device=cuda:99": ["device='cuda:99'", "device=cpu"],
    "steps=0": ["steps=0", "from 1 to"],
    "steps=1e30": ["steps=1e+30", "from "],
    "bs=-1": ["bs=-1", "from 1 to"],
    "bs=a": ["bs='a'", "a whole number"],
    "lr=0": ["lr=0", "above 0"],
    "lr=nan": ["lr='nan'", "a number above 0"],
    "lr=inf": ["lr='inf'", "a number above 0"],
    "lr=1e400": ["lr=inf", "a number above 0"],
    "warmup_steps=3": ["warmup_steps=3", "steps=2"],
    "mask_prob=0": ["mask_prob=0", "between 0 and 1"],
    "mask_prob=1.5": ["mask_prob=1.5", "between 0 and 1"],
    "mask_prob=-.1": ["mask_prob=-0.1", "between 0 and 1"],
    "temperature=0": ["temperature=0", "above 0"],
    "temperature=nan": ["temperature='nan'", "above 0"],
    "gen_smooth_label=2": ["gen_smooth_label=2", "[0, 1)"],
    "micro_batch=3": ["micro_batch=3", "bs=4"],
    "micro_batch=8": ["micro_batch=8", "bs=4"],
    "max_length=2": ["max_length=2", "from 8 to 512"],
    "max_length=1000000": ["max_length=1000000", "from 8 to 512"],
    "num_workers=-1": ["num_workers=-1", "from 0 to"],
    "seed=-1": ["seed=-1", "from 0 to"],
    "seed=x": ["seed='x'", "a whole number"],
    "data_seed=None": ["data_seed=None", "from 0 to"],
    "seed=99999999999999999999": ["seed=99999999999999999999", "from "],
    "encoding=utf-9": ["encoding='utf-9'", "latin-1"],
    "base_run_name=../x": ["base_run_name='../x'", "a name"],
    "base_run_name=..": ["base_run_name='..'", "a name"],
    "base_run_name=/tmp/x": ["base_run_name='/tmp/x'", "a name"],
    f"base_run_name={'x' * 300}": ["base_run_name='xxx", "a name"],
    "upload_to=nowhere://x": ["upload_to='nowhere://x'", "give a folder"],
    "upload_to=text.txt": ["upload_to='text.txt' is a file"],
}.items():
    pretraining(words[:40], words, said)

# Networks.
def electra(**sizes):
    shape = {"model_type": "electra", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 64}
    return f"{ {**shape, **sizes} }"


SHORT_BERT = {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 1, "max_position_embeddings": 32}
for name, arguments, said in [
    ("an unknown family", ["generator={'model_type': 'elektra'}"], ["elektra", "model_type"]),
    ("a family without the head", ["generator={'model_type': 'gpt2'}"], ["gpt2", "another family"]),
    ("no family", ["generator={'hidden_size': 64}"], ["generator={'hidden_size': 64}", "model_type"]),
    ("a number", ["generator=5"], ["'5' is no configuration", "config.json"]),
    ("heads that do not divide", [f"discriminator={electra(num_attention_heads=5)}"], ["(64)", "heads (5)"]),
    ("a negative width", [f"discriminator={electra(hidden_size=-64)}"], ["discriminator", "electra configuration"]),
    ("words for a width", [f"discriminator={electra(hidden_size='wide')}"], ["hidden_size"]),
    ("an unknown size", [f"discriminator={electra(width=64)}"], ["'width'", "hidden_size"]),
    ("other embeddings", [f"discriminator={electra(embedding_size=32)}"], ["tying='embeddings' cannot be"]),
    ("too few positions", ["max_length=64", f"generator={SHORT_BERT}", f"discriminator={SHORT_BERT}"], ["max_length=64", "32 positions"]),
    ("no folder of a network", ["generator=./networks/a"], ["./networks/a", "a folder with a config.json"]),
    ("two networks for one", ["objective=mlm", f"discriminator={electra()}"], ["discriminator=", "objective='mlm'"]),
    ("a discriminator that is not there", ["size=bert_tiny", "objective=electra"], ["size=bert_tiny", "no discriminator"]),
]:
    pretraining(name, arguments, said)

# Text. reads_data: these are mistakes of the text itself.
PARQUET = pandas.DataFrame({"text": ["Some text."] * 5}).to_parquet()
pretraining("no text", "datas=texts/*.txt", ["'texts/*.txt'", "openwebtext, wikipedia, bookcorpus, docs"])
pretraining("no text behind text", "datas=text.txt,missing.txt", ["'missing.txt'", "neither a file"])
pretraining("an empty folder", "datas=empty", ["'empty' is an empty folder"], {"empty/": ""})
pretraining("a folder without text", "datas=folder", ["'folder'", ".txt, .jsonl, .parquet"], {"folder/a.md": "x"})
pretraining("an unknown kind of file", "datas=text.docx", ["'text.docx'", ".txt, .jsonl, .parquet"], {"text.docx": "x"})
pretraining("a misspelt corpus", "datas=openwebtxt", ["'openwebtxt'", "openwebtext"])
pretraining("an unreachable hub", "datas=openwebtext", ["'openwebtext'", "python pretrain.py quickstart=True"])
for name, file, content, said in [
    ("an empty file", "a.txt", "", ["'a.txt'", "no text"]),
    ("a picture", "a.txt", b"\x89PNG\r\n\x1a\n\x00\xff\xfe" * 9, ["a.txt is not utf-8"]),
    ("zeros", "a.txt", bytes(1000), ["a.txt", "no text"]),
    ("latin-1", "a.txt", b"caf\xe9 au lait\n", ["a.txt is not utf-8", "encoding=latin-1"]),
    ("no JSON", "a.jsonl", JSON_LINES + "{'text': 1}", ["a.jsonl, line 501", '"text"']),
    ("JSON without text", "a.jsonl", JSON_LINES + '{"body": ""}', ["a.jsonl, line 501", '"text"']),
    ("no text column", "a.parquet", pandas.DataFrame({"body": ["x"]}).to_parquet(), ['a.parquet has no column "text"', "body"]),
    ("a cut parquet", "a.parquet", PARQUET[:-20], ["a.parquet cannot be read"]),
    ("a damaged parquet", "a.parquet", PARQUET[:8] + bytes(40) + PARQUET[48:], ["a.parquet cannot be read"]),
    ("a cut gz", "a.txt.gz", gzip.compress(ENGLISH.encode())[:-20], ["a.txt.gz cannot be read"]),
    ("one line", "a.txt", "word " * 200_000, ["a.txt", "line break"]),
    ("a foreign language", "a.txt", JAPANESE * 20, ["a.txt", "not in the vocabulary"]),
    ("one word", "a.txt", "a", ["the text makes only 1 examples", "bs=4"]),
]:
    pretraining(name, f"datas={file}", said, {file: content}, reads_data=True)
pretraining("too little for line pairs", "examples=line_pairs", ["text.txt has 3 documents", "examples=electra"], {"text.txt": ENGLISH * 3},
            reads_data=True)

# Vocabulary.
for name, vocab, said, files in [
    ("no vocabulary", "words.txt", ["words.txt", "no such file"], {}),
    ("without [MASK]", "words.txt", ["words.txt", "lacks [MASK]"], {"words.txt": "\n".join(word for word in WORDS if word != "[MASK]")}),
    ("a word twice", "words.txt", ["words.txt", "'twice'"], {"words.txt": "\n".join([*WORDS, "twice", "once", "twice"])}),
    ("an empty vocabulary", "words.txt", ["words.txt", "[MASK]"], {"words.txt": ""}),
    ("a vocabulary that is no text", "words.txt", ["words.txt", "UTF-8"], {"words.txt": b"\xff\xfe\x00"}),
    ("text for a vocabulary", "text.txt", ["text.txt", "twice"], {}),
    ("a folder without a tokenizer", "folder", ["'folder'", "no tokenizer"], {"folder/config.json": "{}"}),
    ("a damaged tokenizer", "pair", ["pair", "vocab=PATH/vocab.txt"], {"pair/discriminator/tokenizer.json": first(99)}),
    ("a misspelt hub id", "google/elektra", ["'google/elektra'", "vocab=PATH/vocab.txt"], {}),
    ("too few words", "10", ["vocab=10", "at least 200"], {}),
    ("no checkpoint with a vocabulary", "words.pth", ["'words.pth'", "there is no checkpoint"], {}),
    ("a vocabulary in a damaged checkpoint", "model.pth", ["model.pth", "cannot be read"], {"model.pth": first(5000)}),
]:
    pretraining(name, f"vocab={vocab}", said, files)

# Pairs to go on from.
for name, start, said, files in [
    ("no pair", "missing.pth", ["'missing.pth'", "there is no checkpoint"], {}),
    ("text for a checkpoint", "model.pth", ["model.pth", "cannot be read"], {"model.pth": "weights\n" * 99}),
    ("a cut checkpoint", "model.pth", ["model.pth", "cannot be read"], {"model.pth": first(50_000)}),
    ("a flipped checkpoint", "model.pth", ["model.pth"], {"model.pth": flip}),
    ("an empty checkpoint", "model.pth", ["model.pth", "cannot be read"], {"model.pth": ""}),
    ("a trap", "model.pth", ["model.pth", "holds more than data"], {"model.pth": trap()}),
    ("a trap of the old format", "model.pth", ["model.pth", "holds more than data"], {"model.pth": trap(old_format=True)}),
    ("a folder without generator", "pair", ["'pair' has no folder generator/"], {"pair/generator/": None}),
    ("a folder with a trap", "pair", ["pair/generator", "could not be loaded"],
     {"pair/generator/model.safetensors": None, "pair/generator/pytorch_model.bin": trap()}),
    ("cut weights in a folder", "pair", ["pair/discriminator", "could not be loaded"],
     {"pair/discriminator/model.safetensors": first(9999)}),
    ("weights that do not fit", "pair", ["pair/discriminator"],
     {"pair/discriminator/config.json": replace('"intermediate_size": 512', '"intermediate_size": 256')}),
    ("a tokenizer that does not fit", "pair", ["the tokenizer of 'pair' has 9058 words", "trained with"],
     {"pair/discriminator/tokenizer.json": None, "pair/discriminator/vocab.txt": "\n".join([*WORDS, *map(str, range(9000))])}),
    ("a finetuned checkpoint", "cola.pth", ["'cola.pth' is no checkpoint that pretrain.py wrote"], {}),
    ("a masked language model", "mlm.pth", ["'mlm.pth' has no discriminator"], {}),
    ("a checkpoint with nonsense", "model.pth", ["model.pth"], {"model.pth": changed(discriminator_config={"model_type": "nonsense"})}),
    ("a checkpoint without weights", "model.pth", ["model.pth", "do not fit"], {"model.pth": changed(model={})}),
    ("a checkpoint with a number for its weights", "model.pth", ["model.pth"], {"model.pth": changed(model=5)}),
    ("a checkpoint with a number for its tokenizer", "model.pth", ["model.pth", "no checkpoint that pretrain.py wrote"],
     {"model.pth": changed(tokenizer=5)}),
]:
    pretraining(f"start from {name}", f"{PAIR}initial_weights={start}", said, files)
pretraining("a pair without a schedule", "vocab= initial_weights=model.pth", ["initial_weights='model.pth'", "give lr"])
pretraining("a pair of another size", f"{PAIR}initial_weights=model.pth size=small", ["'model.pth'", "say size=tiny"])
pretraining("a pair and a vocabulary", "initial_weights=model.pth lr=1e-3 warmup_steps=1",
            ["initial_weights='model.pth'", "vocab='vocab.txt'"])
pretraining("its own checkpoint", f"{PAIR}initial_weights=vanilla_11081_50.0%.pth", ["vanilla_11081", "another base_run_name"])
pretraining("a file for a folder of datasets", "", ["datasets", "is a file"], {"datasets": "x"})
pretraining("a file for a folder of checkpoints", "", ["checkpoints", "is a file"], {"checkpoints": "x"})

# Finetuning: keys and values.
for words, said in {
    "stpes=100": ["'stpes'", "the keys are"],
    "tasks=cola,sst": ["tasks='cola,sst'", "sst2"],
    "tasks=../x": ["tasks='../x'", "cola"],
    "tasks=cola,cola": ["tasks='cola,cola'", "different tasks"],
    "tasks=": ["tasks=''", "cola"],
    "end=0": ["end=0", "from 1 to"],
    "start=3": ["start=3", "end=1"],
    "seeds=1 end=2": ["seeds has 1 entries"],
    "seeds=a": ["seeds=", "whole numbers"],
    "seeds=99999999999999999999": ["seeds=99999999999999999999", "whole numbers"],
    "start=99999999999999999998 end=99999999999999999999": ["start=99999999999999999998", "from "],
    "end=2 end=3": ["end is given twice"],
    "group_name=../x": ["group_name='../x'", "a name"],
    "th_run=best": ["th_run='best'", "a list of runs"],
    "task_overrides={'cola':{'epochs':1e30}}": ["task_overrides=", "'epochs': count"],
    "task_overrides={'rte':{'batch':3}}": ["task_overrides=", "'bs': count"],
    "task_overrides={'cola':{'lr':1e400}}": ["task_overrides=", "'lr': number"],
    "size=small": ["model.pth", "say size=tiny"],
    "schedule=cosine": ["schedule='cosine'", "'original_linear'"],
    "protocol=google": ["protocol='google'", "'lmtuners'"],
    "precision=fp64": ["precision='fp64'", "'fp32'"],
    "logger=none": ["logger='none'", "'tensorboard'"],
    "max_length=1": ["max_length=1", "from 8 to 512"],
    "weight_decay=nan": ["weight_decay='nan'", "[0, 1)"],
    "device=cuda:99": ["device='cuda:99'", "device=cpu"],
    "num_workers=-1": ["num_workers=-1", "from 0 to"],
    "wsc_dir=glue/WSC": ["wsc_dir='glue/WSC'", "wsc_trick=True"],
    "glue_dir=nowhere": ["glue_dir: 'nowhere'", "not a folder"],
    "glue_dir=text.txt": ["glue_dir: 'text.txt'", "not a folder"],
    "do_finetune=False": ["The group 'g' has no finished run", "do_finetune=True"],
    "do_finetune=False th_run=99": ["The group 'g' has no finished run", "do_finetune=True"],
    "tasks=wnli wsc_trick=True wsc_dir=nowhere": ["nowhere/train.jsonl", "wsc_dir=PATH"],
}.items():
    finetuning(words[:40], words, said)

# What is finetuned.
TRAP_CONFIG = json.dumps({"model_type": "trap", "auto_map": {"AutoConfig": "trap.Trap", "AutoModel": "trap.Trap"}})
TRAP_CODE = "import os\nos.mkdir('trapped')\nclass Trap: pass\n"
for name, model, said, files in [
    ("no checkpoint", "missing.pth", ["'missing.pth'", "there is no checkpoint"], {}),
    ("a cut checkpoint", "model.pth", ["model.pth", "cannot be read"], {"model.pth": first(50_000)}),
    ("a flipped checkpoint", "model.pth", ["model.pth"], {"model.pth": flip}),
    ("an empty checkpoint", "model.pth", ["model.pth", "cannot be read"], {"model.pth": ""}),
    ("a trap", "model.pth", ["model.pth", "holds more than data"], {"model.pth": trap()}),
    ("a finetuned checkpoint", "cola.pth", ["'cola.pth' is no checkpoint that pretrain.py wrote"], {}),
    ("a checkpoint of nonsense", "model.pth", ["model.pth"], {"model.pth": changed(discriminator_config={"model_type": "nonsense"})}),
    ("a checkpoint with a number for its configuration", "model.pth", ["model.pth"], {"model.pth": changed(config=5)}),
    ("a pair", "pair", ["'pair' holds two networks", "discriminator"], {}),
    ("no folder", "./nothing", ["there is no folder './nothing'"], {}),
    ("an empty folder", "empty", ["'empty'", "transformers folder"], {"empty/": ""}),
    ("a folder with code of its own", "trap", ["'trap'"], {"trap/config.json": TRAP_CONFIG, "trap/trap.py": TRAP_CODE}),
    ("a folder with a trap", "pair/discriminator", ["pair/discriminator"],
     {"pair/discriminator/model.safetensors": None, "pair/discriminator/pytorch_model.bin": trap()}),
    ("a folder without weights", "pair/discriminator", ["pair/discriminator", "lacks weights"],
     {"pair/discriminator/model.safetensors": None}),
    ("a misspelt hub id", "google/elektra", ["'google/elektra'", "quickstart=True"], {}),
]:
    finetuning(f"from {name}", f"pretrained_checkpoint={model}", said, files)
finetuning("runs from MNLI without one", "tasks=rte start_from_mnli=True", ["start_from_mnli", "MNLI run in the group 'g'"],
           reads_data=True)
finetuning("runs of another group's MNLI", "tasks=rte start_from_mnli=nobody", ["the group 'nobody'", "Add mnli"], reads_data=True)
finetuning("runs that will not be there", "th_run=99", ["th_run names run 99 of cola", "finetune it"], reads_data=True)
finetuning("a damaged table of runs", "", ["scores.jsonl, line 1", "Delete that line"], {"checkpoints/glue/scores.jsonl": "nonsense\n"},
           reads_data=True)
finetuning("a table of runs with nonsense", "", ["scores.jsonl, line 1", "Delete that line"],
           {"checkpoints/glue/scores.jsonl": lambda _: Path("scores.jsonl").read_bytes()
            .replace(b'"settings": {', b'"settings": 5, "x": {')},
           reads_data=True)
finetuning("a damaged finished run", "do_finetune=False", ["checkpoints/glue/g_cola_0.pth", "cannot be read"],
           {"checkpoints/glue/scores.jsonl": lambda _: Path("scores.jsonl").read_bytes(), "checkpoints/glue/g_cola_0.pth": "x"},
           reads_data=True)
finetuning("a file for a folder of checkpoints", "", ["checkpoints", "is a file"], {"checkpoints": "x"})
finetuning("a file for a folder of test files", "", ["test_outputs", "is a file"], {"test_outputs": "x"})

# Tables.
for name, arguments, file, content, said in [
    ("without tables", "tasks=mrpc", "glue/CoLA/", None, ["mrpc", "glue_dir=PATH"]),
    ("a missing column", "tasks=rte", "glue/RTE/train.tsv", replace("sentence2\t", "premise\t"), ["RTE/train.tsv, line 1", "'sentence2'"]),
    ("wrong labels", "tasks=rte", "glue/RTE/dev.tsv", replace("entailment\n", "entails\n"),
     ["RTE/dev.tsv, line ", "'not_entails'", "not_entailment"]),
    ("an empty table", "", "glue/CoLA/train.tsv", "", ["CoLA/train.tsv is empty"]),
    ("a header alone", "tasks=rte", "glue/RTE/train.tsv", lambda content: content.split(b"\n")[0] + b"\n",
     ["RTE/train.tsv", "a header but no rows"]),
    ("a cut test file", "tasks=rte", "glue/RTE/test.tsv", lambda content: content[:content.rindex(b"\t")],
     ["RTE/test.tsv, line ", "every test row"]),
    ("a zip for a table", "", "glue/CoLA/train.tsv", b"PK\x03\x04\xff\xfe" * 99, ["CoLA/train.tsv, line 1", "UTF-8"]),
    ("commas for tabs", "tasks=rte", "glue/RTE/train.tsv", replace("\t", ","), ["RTE/train.tsv, line 1", "missing column"]),
    ("broken JSON of WSC", "tasks=wnli wsc_trick=True", "glue/WSC/train.jsonl", replace("{", "["), ["WSC/train.jsonl, line 1"]),
    ("latin-1 of WSC", "tasks=wnli wsc_trick=True", "glue/WSC/val.jsonl", b"\xe9", ["WSC/val.jsonl", "UTF-8"]),
    ("WSC without spans", "tasks=wnli wsc_trick=True", "glue/WSC/val.jsonl", replace("span1_text", "span"),
     ["WSC/val.jsonl, line 1", "span1_text"]),
]:
    finetuning(f"tables {name}", arguments, said, {file: content}, reads_data=True)

# The other commands.
EXPORT, CONVERT, PREDICT, SUBMIT = "_utils.export_hf", "_utils.convert_tf", "_utils.predict", "_utils.glue_submission"
for name, arguments, said, files in [
    ("no arguments", "", ["CKPT, OUT_DIR"], {}),
    ("no folder", "model.pth", ["OUT_DIR"], {}),
    ("an unknown option", "model.pth out --vocav vocab.txt", ["--vocav"], {}),
    ("no checkpoint", "missing.pth out", ["'missing.pth'", "there is no checkpoint"], {}),
    ("a folder for a checkpoint", "pair out", ["'pair' is a folder", ".pth"], {}),
    ("a folder that is there", "model.pth pair", ["pair' is there already", "a new folder"], {}),
    ("a file for a folder", "model.pth text.txt", ["text.txt' is there already", "a new folder"], {}),
    ("text for a checkpoint", "text.txt out", ["text.txt", "cannot be read"], {}),
    ("a cut checkpoint", "model.pth out", ["model.pth", "cannot be read"], {"model.pth": first(50_000)}),
    ("a trap", "model.pth out", ["model.pth", "holds more than data"], {"model.pth": trap()}),
    ("a second vocabulary", "model.pth out --vocab vocab.txt", ["model.pth", "leave --vocab out"], {}),
    ("another program's checkpoint", "model.pth out", ["model.pth", "of another program"], {"model.pth": changed(model=None)}),
    ("damaged measures", "m_100.0%.pth out", ["m/metrics.jsonl, line 1", "delete that line"],
     {"m_100.0%.pth": lambda _: Path("model.pth").read_bytes(), "m/metrics.jsonl": "nonsense"}),
    ("a finetuned one of an unknown task", "cola.pth out", ["cola.pth"], {"cola.pth": changed(run={"task": "nonsense"})}),
    ("a finetuned one with a number for its run", "cola.pth out", ["cola.pth"], {"cola.pth": changed(run=5)}),
    ("a finetuned one without weights", "cola.pth out", ["cola.pth"], {"cola.pth": changed(model={})}),
]:
    module(EXPORT, name, arguments, said, files)
for name, arguments, said, files in [
    ("no arguments", "", ["CKPT_PREFIX"], {}),
    ("no part", "tf out", ["--part"], {}),
    ("an unknown part", "tf out --part encoder", ["--part", "'encoder'"], {}),
    ("no checkpoint", "missing out --part generator", ["'missing.index'", "without its ending"], {}),
    ("text for an index", "tf out --part generator", ["tf.index", "fetch it again"], {"tf.index": "text " * 99}),
    ("cut values", "tf out --part generator --hparams hparams.json", ["tf.data-00000-of-00001 ends before", "fetch it again"],
     {"tf.data-00000-of-00001": first(9999)}),
    ("no values", "tf out --part generator --hparams hparams.json", ["tf.data-00000-of-00001"], {"tf.data-00000-of-00001": None}),
    ("hparams that are no JSON", "tf out --part generator --hparams {size:small}", ["--hparams '{size:small}'", "JSON"], {}),
    ("hparams in no file", "tf out --part generator --hparams none.json", ["--hparams 'none.json'", "file"], {}),
    ("hparams that are a list", "tf out --part generator --hparams list.json", ["--hparams 'list.json'", "model_size"],
     {"list.json": "[1]"}),
    ("hparams of nonsense", 'tf out --part generator --hparams {"model_hparam_overrides":5}', ["--hparams"], {}),
    ("hparams that are no text", "tf out --part generator --hparams bytes.json", ["--hparams 'bytes.json'"], {"bytes.json": b"\xff"}),
    ("no vocabulary", "tf out --part generator --vocab none.txt", ["none.txt cannot be read"], {}),
    ("another vocabulary", "tf out --part generator --vocab words.txt --hparams hparams.json", ["words.txt has", "the checkpoint 2000"],
     {"words.txt": "\n".join(WORDS)}),
    ("a folder that is there", "tf pair --part generator", ["pair' is there already", "a new folder"], {}),
]:
    module(CONVERT, name, arguments, said, files)
for command, name, arguments, said, files in [
    (PREDICT, "no arguments", "", ["give a checkpoint and a file"], {}),
    (PREDICT, "no checkpoint", "missing.pth sentences.txt", ["'missing.pth'", "Finetuned checkpoint not found"], {}),
    (PREDICT, "a pretrained checkpoint", "model.pth sentences.txt", ["'model.pth' is not a checkpoint written by finetune.py"], {}),
    (PREDICT, "a cut checkpoint", "cola.pth sentences.txt", ["cola.pth", "cannot be read"], {"cola.pth": first(9999)}),
    (PREDICT, "a trap", "cola.pth sentences.txt", ["cola.pth", "holds more than data"], {"cola.pth": trap()}),
    (PREDICT, "no sentences", "cola.pth missing.txt", ["'missing.txt'", "there is no file"], {}),
    (PREDICT, "a folder for sentences", "cola.pth pair", ["'pair'"], {}),
    (PREDICT, "two texts for one", "cola.pth sentences.txt", ["sentences.txt, line 2", "one sentence"],
     {"sentences.txt": "One.\nOne.\tTwo.\n"}),
    (PREDICT, "an empty file", "cola.pth sentences.txt", ["sentences.txt, line 1", "one sentence"], {"sentences.txt": ""}),
    (SUBMIT, "no arguments", "", ["Pass a zip or a folder"], {}),
    (SUBMIT, "no zip", "missing.zip", ["File not found: 'missing.zip'"], {}),
    (SUBMIT, "text for a zip", "text.txt", ["text.txt is not a readable zip"], {}),
    (SUBMIT, "an empty folder", "empty", ["empty lacks", "all eleven"], {"empty/": ""}),
    (SUBMIT, "a zip that climbs out", "a.zip", ["a.zip", "../trapped"], {"a.zip": lambda _: file_of(climbing_zip)}),
    ("_utils.glue_results", "no runs", "", ["No finished run", "python finetune.py"], {}),
    ("_utils.glue_results", "an unknown group", "nobody", ["'nobody'", "Choose from g"],
     {"checkpoints/glue/scores.jsonl": lambda _: Path("scores.jsonl").read_bytes()}),
    ("_utils.export_notebooks", "an unknown option", "--chekc", ["--chekc", "--check"], {}),
    ("_utils.export_notebooks", "another folder", "", ["no Pretrain.ipynb", "folder"], {}),
    ("benchmarks.pretraining", "an unknown key", "sise=tiny", ["'sise", "size"], {}),
    ("benchmarks.pretraining", "an unknown size", "size=huge", ["size='huge'", "'tiny'"], {}),
    ("benchmarks.pretraining", "no rounds", "size=tiny rounds=0", ["rounds=0", "from 1 to"], {}),
    ("benchmarks.pretraining", "an unknown device", "size=tiny device=gpu", ["device='gpu'", "'cuda'"], {}),
    ("benchmarks.loader", "words for workers", "workers=two", ["workers='two'", "numbers"], {}),
    ("benchmarks.loader", "too few examples", "examples=10", ["examples=10", "bs=128"], {}),
    ("benchmarks.preprocessing", "no text", "datas=missing.txt", ["'missing.txt'", "neither a file"], {}),
]:
    module(command, name, arguments, said, files)

# Those of the quick suite.
QUICK = [
    "pretrain: stpes=100", "pretrain: lr=1e-4 lr=2e-4", "pretrain: size=tyni", "pretrain: lr=nan", "pretrain: base_run_name=../x",
    "pretrain: device=cuda:99", "pretrain: heads that do not divide", "pretrain: no text behind text", "pretrain: an unreachable hub",
    "pretrain: JSON without text", "pretrain: without [MASK]", "pretrain: start from a trap", "pretrain: start from a cut checkpoint",
    "finetune: tasks=cola,sst", "finetune: from a flipped checkpoint", "finetune: from a folder with code of its own",
    "finetune: from a folder with a trap", "finetune: tables wrong labels", "finetune: do_finetune=False",
    "export_hf: a folder that is there",
    "convert_tf: cut values", "predict: a trap", "glue_submission: a zip that climbs out", "benchmarks.loader: words for workers",
]


def prepare(case, good, folder):
    """Make `folder` a copy of the folder of good files but for those of the case."""
    shutil.copytree(good, folder)
    with contextlib.chdir(folder):
        for name, content in case.files.items():
            put(Path(name), content, is_folder=name.endswith("/"))


def put(path, content, is_folder):
    """Give a file (or folder) the content that a case wants."""
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
    """{path: when it was last written} of everything below a folder."""
    paths = (path for path in folder.rglob("*") if path.is_file() or not any(path.iterdir()))
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in paths}


def faults(case, done, before, after):
    """What is wrong with the way in which a command ended, in words; [] where it is as it should be.

    before, after: `contents` of its folder.
    """
    lines = done.stderr.rstrip().split("\n")
    last, told = lines[-1], "\n".join((done.stdout, done.stderr))
    written = sorted(path for path in after if after[path] != before.get(path)) + sorted(set(before) - set(after))
    prepared = re.compile(r"datasets|datasets/(sources\.json|(documents|examples)_\w+\.arrow(\.xxh3)?)" if case.reads_data else "(?!)")
    found = {
        f"it ended with {done.returncode}": done.returncode not in (1, 2),
        "a traceback": "Traceback" in told,
        "no sentence at its end": not re.match(r"(python -m \S+: )?error: \S", last),
        "more than a sentence": len(last) > 600 or sum("error: " in line for line in lines) > 1,
        f"not named: {[words for words in case.named if words not in last]}": any(words not in last for words in case.named),
        f"written: {written}": not all(prepared.fullmatch(path) for path in written),
    }
    return [fault for fault, is_there in found.items() if is_there]
