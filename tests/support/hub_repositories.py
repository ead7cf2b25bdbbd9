"""Small repositories in the layout of those that the project loads from the hub: {path: content}."""
import io
import json
import random

import datasets
import pandas as pd
import torch
from corpora import sentence
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from _utils.tasks.glue import TASKS
from _utils.tasks.tables import is_test, read_tsv

OPENWEBTEXT, WIKIPEDIA, BOOKCORPUS = "Skylion007/openwebtext", "wikimedia/wikipedia", "bookcorpus/bookcorpus"
PARQUET_BRANCH = "refs/convert/parquet"
DISCRIMINATOR, GENERATOR = "google/electra-small-discriminator", "google/electra-small-generator"

_PAIR, _PREMISE = ("sentence1", "sentence2"), ("premise", "hypothesis")
_TWO, _THREE = ("entailment", "not_entailment"), ("entailment", "neutral", "contradiction")
GLUE = {  # {configuration: (texts, label names by id)}
    "cola": (("sentence",), ("unacceptable", "acceptable")),
    "sst2": (("sentence",), ("negative", "positive")),
    "mrpc": (_PAIR, ("not_equivalent", "equivalent")),
    "qqp": (("question1", "question2"), ("not_duplicate", "duplicate")),
    "stsb": (_PAIR, None),
    "mnli": (_PREMISE, _THREE),
    "qnli": (("question", "sentence"), _TWO),
    "rte": (_PAIR, _TWO),
    "wnli": (_PAIR, ("not_entailment", "entailment")),
    "ax": (_PREMISE, _THREE)}
_WSC = datasets.Features({
    **dict.fromkeys(("text", "span1_text", "span2_text"), datasets.Value("string")),
    **dict.fromkeys(("span1_index", "span2_index", "idx"), datasets.Value("int32")),
    "label": datasets.ClassLabel(names=["False", "True"])})


def lines(n, seed):
    """Lines of about a hundred words."""
    rng = random.Random(seed)
    return [" ".join(sentence(rng) for _ in range(8)) for _ in range(n)]


def documents(n, seed):
    """Documents of ten lines."""
    return ["\n".join(lines(10, f"{seed} {i}")) for i in range(n)]


def parquet(columns, features=None):
    """The content of a parquet file with {column: values}."""
    file = io.BytesIO()
    datasets.Dataset.from_pandas(pd.DataFrame(columns), features, preserve_index=False).to_parquet(file)
    return file.getvalue()


def card(configurations, features=None):
    """The README.md of a dataset. configurations: {name: {split: files}}.   features: {name: datasets.Features}."""
    files = [{"config_name": name, "data_files": [{"split": split, "path": path} for split, path in splits.items()]}
             for name, splits in configurations.items()]
    infos = [{"config_name": name, "features": found._to_yaml_list()} for name, found in (features or {}).items()]
    return f"---\n{json.dumps({'configs': files, 'dataset_info': infos})}\n---\n".encode()  # JSON is YAML


def openwebtext(**shards):
    """Three shards of 20 documents, unless they are given as `shards`: {name: content}."""
    names = [f"train-0000{i}-of-00003.parquet" for i in range(3)]
    contents = {name: parquet({"text": documents(20, name)}) for name in names} | shards
    return {"README.md": card({"plain_text": {"train": "plain_text/train-*"}}),
            **{f"plain_text/{name}": content for name, content in contents.items()}}


def wikipedia():
    """Two dumps of two shards."""
    files = {"README.md": card({dump: {"train": f"{dump}/train-*"} for dump in ("20231101.de", "20231101.en")})}
    for dump in ("20231101.de", "20231101.en"):
        for i in range(2):
            columns = {**dict.fromkeys(("id", "url", "title"), ["x"] * 20), "text": documents(20, f"{dump} {i}")}
            files[f"{dump}/train-0000{i}-of-00002.parquet"] = parquet(columns)
    return files


def bookcorpus():
    """Two shards with a line in each row, as the hub converts them, without a README.md."""
    return {f"plain_text/train/000{i}.parquet": parquet({"text": lines(500, i)}) for i in range(2)}


def glue(folder):
    """nyu-mll/glue with the rows in a folder of a GLUE download."""
    splits, features, files = {}, {}, {}
    for name, (texts, labels) in GLUE.items():
        task = TASKS["mnli" if name == "ax" else name]  # AX is a test set of MNLI in the download only
        files_of = {split: task.file(split) for split in task.official_rows if split != "test_ax"}
        if name == "ax":
            files_of = {"test": task.file("test_ax")}
        splits[name] = {split: f"{name}/{split}-*" for split in files_of}
        features[name] = datasets.Features({
            **dict.fromkeys(texts, datasets.Value("string")), "idx": datasets.Value("int32"),
            "label": datasets.ClassLabel(names=list(labels)) if labels else datasets.Value("float32")})
        for split, file in files_of.items():
            rows = read_tsv(folder / file, () if is_test(split) else task.headerless).rows
            *columns, label = task.columns_in_files
            content = {text: rows[column] for text, column in zip(texts, columns)} | {"idx": range(len(rows))}
            content["label"] = -1 if is_test(split) else [_label_id(cell, labels) for cell in rows[label]]
            files[f"{name}/{split}-00000-of-00001.parquet"] = parquet(content, features[name])
    return {"README.md": card(splits, features), **files}


def _label_id(cell, labels):
    """The id of a label, which the files spell or number; a score."""
    return labels.index(cell) if cell in (labels or ()) else int(cell) if labels else float(cell)


def wsc(folder):
    """aps/super_glue, of which only WSC, with the rows in a folder of its download."""
    splits = {"train": "wsc/train-*", "validation": "wsc/validation-*"}
    files = {"README.md": card({"wsc": splits}, {"wsc": _WSC})}
    for split, name in ("train", "train.jsonl"), ("validation", "val.jsonl"):
        lines = map(json.loads, (folder / name).read_text().splitlines())
        rows = [{"span1_index": 0, **line["target"], "text": line["text"], "label": int(line["label"]), "idx": i}
                for i, line in enumerate(lines)]
        files[f"wsc/{split}-00000-of-00001.parquet"] = parquet(rows, _WSC)
    return files


def electra(hf_tokenizer):
    """({hub id: network}, {hub id: files}) of a discriminator and a generator with the same embeddings."""
    torch.manual_seed(0)
    sizes = dict(vocab_size=len(hf_tokenizer), embedding_size=16, num_hidden_layers=1, num_attention_heads=2,
                 intermediate_size=32)
    networks = {DISCRIMINATOR: ElectraForPreTraining(ElectraConfig(hidden_size=32, **sizes)),
                GENERATOR: ElectraForMaskedLM(ElectraConfig(hidden_size=16, **sizes))}
    embeddings = networks[DISCRIMINATOR].electra.embeddings.state_dict()
    networks[GENERATOR].electra.embeddings.load_state_dict(embeddings)
    tokenizer, repositories = hf_tokenizer.backend_tokenizer.to_str().encode(), {}
    for name, network in networks.items():
        network.config.architectures = [type(network).__name__]
        weights = io.BytesIO()
        torch.save(network.state_dict(), weights)
        repositories[name] = {"config.json": network.config.to_json_string().encode(), "tokenizer.json": tokenizer,
                              "pytorch_model.bin": weights.getvalue()}
    return networks, repositories
