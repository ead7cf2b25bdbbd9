"""Texts and labels for the measurement of continued pretraining: `python -m benchmarks.continued DATA`.

DATA is a folder with wikipedia/ and novels/, parquet files with a column `text`. Written to datasets/continued/:
docs.txt, docs_test.txt, packages.csv, agreement.csv: documentation of the twenty installed packages with the most
prose. Its source files are divided at random: 60% are text to pretrain on, 10% test text, and 30% the tables of two
tasks, paragraphs with the package that they document, and sentences whose verb has the right or the wrong number.
novels.txt, novels_test.txt: 2 MB and 1 MB of chapters, drawn at random.   wikipedia_test.txt: 1 MB of articles.
wikipedia_for_docs.txt, wikipedia_for_novels.txt: old text to mix in, a ninth of the new text, so that it is a tenth of
both.
"""
import multiprocessing
import random
import re
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from _utils.text.embedded_text import sentences_of, source_files

FOLDER = Path("datasets/continued")
PARAGRAPHS = 150  # of each package in the table
SENTENCES = 2000  # about agreement
OTHER_NUMBER = {"is": "are", "are": "is", "was": "were", "were": "was", "has": "have", "have": "has"}


def write_texts(data):
    """Write all files. data: folder with wikipedia/ and novels/."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    text, test, rest = divided(documentation(), rng)
    rest = rest.sample(frac=1, random_state=0)
    rest.groupby("package").head(PARAGRAPHS).to_csv(FOLDER / "packages.csv", index=False)
    agreement(rest).head(SENTENCES).to_csv(FOLDER / "agreement.csv", index=False)
    wikipedia, novels = (shuffled(f"{data}/{name}", rng) for name in ("wikipedia", "novels"))
    sizes = {"docs": write("docs", text), "novels": write("novels", novels, 2_000_000)}
    write("docs_test", test)
    write("novels_test", novels, 1_000_000)
    write("wikipedia_test", wikipedia, 1_000_000)
    for name, size in sizes.items():
        write(f"wikipedia_for_{name}", wikipedia, size / 9)


def documentation():
    """DataFrame (package, file, paragraph) of the twenty packages with the most paragraphs, without repeated ones."""
    files = list(source_files())
    with multiprocessing.Pool() as pool:
        found = pool.map(sentences_of, files, chunksize=64)
    rows = [
        (package_of(file), str(file), paragraph) for file, paragraphs in zip(files, found) for paragraph in paragraphs
    ]
    table = pd.DataFrame(rows, columns=["package", "file", "text"]).drop_duplicates("text")
    return table[table["package"].isin([package for package, _ in Counter(table["package"]).most_common(20)])]


def package_of(path):
    packages = Path(sysconfig.get_path("purelib"))
    return path.relative_to(packages).parts[0] if path.is_relative_to(packages) else "Python"


def divided(table, rng):
    """(documents to pretrain on, documents to test with, paragraphs for the tasks) from different source files."""
    files = table["file"].unique()
    part = table["file"].map(dict(zip(files, rng.choice(3, len(files), p=[.6, .1, .3]))))
    documents = [iter(table[part == i].groupby("file", sort=False)["text"].agg("\n".join)) for i in range(2)]
    return *documents, table[part == 2]


def agreement(table):
    """DataFrame (text, label, file) of the sentences with one of six verbs, in half of which it has the wrong number.
    """
    rng, rows = random.Random(0), {}
    for file, text in zip(table["file"], table["text"]):
        for words in map(str.split, re.split(r"(?<=\.) ", text)):
            verbs = [i for i, word in enumerate(words) if word in OTHER_NUMBER]
            if len(verbs) == 1 and 6 <= len(words) <= 25:
                label = rng.choice(["right", "wrong"])
                if label == "wrong":
                    words[verbs[0]] = OTHER_NUMBER[words[verbs[0]]]
                rows[" ".join(words)] = label, file
    return pd.DataFrame([(text, *row) for text, row in rows.items()], columns=["text", "label", "file"])


def shuffled(folder, rng):
    """Iterator over the texts of a folder of parquet files, in random order."""
    texts = pd.concat(map(pd.read_parquet, sorted(Path(folder).glob("*.parquet"))))["text"].to_numpy()
    return iter(rng.permutation(texts))


def write(name, documents, size=float("inf")):
    """Write documents, a sentence on each line, until there are `size` characters. Returns the number of characters."""
    written = 0
    with open(FOLDER / f"{name}.txt", "w", encoding="utf-8") as file:
        for document in documents:
            written += file.write(
                re.sub(r"(?<=[.!?]) +(?=[A-Z\"'(])", "\n", re.sub(r"\n\s*\n", "\n", document)).strip() + "\n\n"
            )
            if written >= size:
                break
    return written


if __name__ == "__main__":
    write_texts(*sys.argv[1:])
