"""The unigram entropy of a training text: the loss of a language model that knows only how frequent each token is."""
import numpy as np
from scipy.stats import entropy

_MAX_EXAMPLES = 50_000  # enough for two decimals


def unigram_entropy(examples, special_ids):
    """Entropy in nats of the tokens of up to 50,000 examples, evenly spread, without special tokens.

    examples: a datasets.Dataset with input_ids.   special_ids: ids that are never masked.
    """
    rows = examples.select(range(0, len(examples), -(-len(examples) // _MAX_EXAMPLES)))
    counts = np.zeros(1, dtype=np.int64)
    for batch in rows.with_format("arrow").iter(batch_size=10_000):
        of_batch = np.bincount(batch["input_ids"].combine_chunks().flatten().to_numpy(), minlength=len(counts))
        of_batch[:len(counts)] += counts
        counts = of_batch
    counts[[i for i in special_ids if i < len(counts)]] = 0
    return float(entropy(counts))
