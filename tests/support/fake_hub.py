"""A fake Hugging Face hub, because the tests run offline."""
import shutil
from pathlib import Path
from types import SimpleNamespace

import datasets
import pandas
from datasets.data_files import DataFilesDict
from datasets.load import configure_builder_class
from datasets.packaged_modules.parquet import parquet

FIRST, SECOND = "1" * 40, "2" * 40  # commits


class Hub:
    """Hub with datasets of one parquet file at several commits. Loading fills the cache of `datasets` like the real hub.

    texts: {commit: column `text`}.   head: the newest commit; the tag 'old-tag' points to FIRST.
    """

    def __init__(self, folder, monkeypatch, texts):
        self.folder, self.head, self.calls, self.texts = folder / "hub", FIRST, [], texts
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "datasets_cache")
        monkeypatch.setattr(datasets, "load_dataset", self.load_dataset)
        monkeypatch.setattr("huggingface_hub.HfApi", lambda: self)

    def dataset_info(self, path, revision):
        self.calls.append((path, revision))
        return SimpleNamespace(sha={"old-tag": FIRST}.get(revision, self.head))

    def load_dataset(self, path, name=None, revision=None, split=None):
        self.calls.append((path, name, revision, split))
        columns = ["id", "url", "title", "text"] if name else ["text"]
        file = self.folder / revision / "train.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pandas.DataFrame(dict.fromkeys(columns, self.texts[revision])).to_parquet(file)
        files = DataFilesDict.from_patterns({"train": [str(file)]})
        config = parquet.ParquetConfig(name=name or "default", data_files=files)
        namespace, dataset_name = path.split("/")
        builder = configure_builder_class(parquet.Parquet, [config], config.name, dataset_name)(
            dataset_name=dataset_name, config_name=config.name, hash=revision, cache_dir=str(self.folder))
        builder.download_and_prepare()
        cached = Path(datasets.config.HF_DATASETS_CACHE, f"{namespace}___{dataset_name}", config.name, "0.0.0", revision)
        shutil.copytree(builder.cache_dir, cached, dirs_exist_ok=True)  # the cache path of a dataset that comes from the hub
        [file] = cached.glob("*.arrow")
        return datasets.Dataset.from_file(str(file))
