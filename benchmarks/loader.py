"""The pretraining loader: whole batches from Arrow, compared with rows fetched one at a time as in electra_pytorch.

    python -m benchmarks.loader [bs=128] [max_length=128] [examples=20000] [workers=0,2] [rounds=5]
"""
import random
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

import datasets

from _utils.errors import UserError
from _utils.keys import Count, count
from _utils.text.batches import pretraining_dataloaders
from _utils.text.vocabulary import SPECIAL_TOKENS, tokenizer_from_tokens
from benchmarks.reference import RowByRowLoader
from benchmarks.report import alternate, median_ratio, parse, processes, write_results

DEFAULTS = {"bs": 128, "max_length": 128, "examples": 20_000, "workers": [0, 2], "rounds": 5}
TYPES = {"bs": Count, "max_length": count(8), "examples": Count, "workers": processes(0), "rounds": Count}


def random_examples(n, max_length, folder):
    """Arrow-backed random examples with the lengths of the example builder.

    Nine of ten are full, the others of any length.
    """
    rng = random.Random(0)
    lengths = [max_length if rng.random() < .9 else rng.randint(5, max_length) for _ in range(n)]
    table = {"input_ids": [[rng.randrange(5, 30_000) for _ in range(length)] for length in lengths],
             "sentA_length": [length // 2 + 1 for length in lengths]}
    features = datasets.Features(
        {"input_ids": datasets.List(datasets.Value("uint16")), "sentA_length": datasets.Value("int32")}
    )
    path = Path(folder, "examples")
    datasets.Dataset.from_dict(table, features=features).save_to_disk(path)
    return datasets.load_from_disk(path)


def tokens_per_second(batches, n):
    """Tokens per second of the first n batches, padding included."""
    batches = iter(batches)
    next(batches)  # starts the workers
    start, tokens = time.perf_counter(), 0
    for _, (ids, *_) in zip(range(n), batches):
        tokens += ids.numel()
    return tokens / (time.perf_counter() - start)


def main(arguments):
    given = parse(arguments, DEFAULTS, TYPES)
    if given["examples"] < 4 * given["bs"]:
        raise UserError(f"examples={given['examples']} is too few for bs={given['bs']}. Pass at least four batches.")
    hf_tokenizer = tokenizer_from_tokens([*SPECIAL_TOKENS, "word"])
    with tempfile.TemporaryDirectory() as folder:
        examples = random_examples(given["examples"], given["max_length"], folder)
        n = given["examples"] // given["bs"] - 2

        def whole_batches(workers):
            loaders = pretraining_dataloaders(
                {"train": examples}, hf_tokenizer, given["bs"], n + 2, given["max_length"], 0, workers
            )
            return tokens_per_second(loaders.train, n)

        loaders = {"row by row": lambda: tokens_per_second(RowByRowLoader(examples, given["bs"], 0), max(2, n // 10)),
                   **{f"batches, {workers} workers": partial(whole_batches, workers) for workers in given["workers"]}}
        rates = alternate(loaders, given["rounds"])
    rows = {
        name: {"tokens/s": median(rate), "ratio": median_ratio(rate, rates["row by row"])}
        for name, rate in rates.items()
    }
    write_results("loader", rows, {**given, "rounds_tokens_per_second": rates})


if __name__ == "__main__":
    main(sys.argv[1:])
