"""Texts for the measurement of continued pretraining: `python -m benchmarks.continued DATA`.

DATA is a folder with wikipedia/ and novels/, parquet files with a column `text`. Written to datasets/continued/:
novels.txt, novels_test.txt: 2 MB and 1 MB of chapters, drawn at random.   wikipedia_test.txt: 1 MB of articles.
wikipedia_for_novels.txt: old text to mix in, a ninth of the new text, so that it is a tenth of both.
"""
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd

FOLDER = Path("datasets/continued")


def write_texts(data):
    """Write all files. data: folder with wikipedia/ and novels/."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    wikipedia, novels = (shuffled(f"{data}/{name}", rng) for name in ("wikipedia", "novels"))
    size = write("novels", novels, 2_000_000)
    write("novels_test", novels, 1_000_000)
    write("wikipedia_test", wikipedia, 1_000_000)
    write("wikipedia_for_novels", wikipedia, size / 9)


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
