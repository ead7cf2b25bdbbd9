"""Records how often the generator's sampling draws each token, by temperature and with the original token excluded
(F15).
"""
import re

import numpy as np
from recording import frequency, session, stored, tf, write

from pretrain import pretrain_helpers

DRAWS_AT_ONCE = 20_000


def record():
    values = stored("sampling.json")
    logits = np.array(values["logits"], "float32")
    yield "sampling.json", {name: of_setting(name, logits, values[name]["n"]) for name in values if name[0] == "T"}


def of_setting(name, logits, n):
    """name: such as T0.5_disallow0."""
    temperature, _, excluded = re.fullmatch(r"T([\d.]+)(_disallow(\d+))?", name).groups()
    tf.reset_default_graph()
    tf.set_random_seed(1)
    scaled = tf.constant(np.tile(logits / float(temperature), (DRAWS_AT_ONCE, 1)))
    disallow = tf.one_hot(tf.fill([DRAWS_AT_ONCE], int(excluded)), len(logits)) if excluded else None
    samples = pretrain_helpers.sample_from_softmax(scaled, disallow)
    softmax = tf.nn.softmax(scaled - 1000. * disallow if excluded else scaled)[0]
    counts, is_one_hot = np.zeros(len(logits)), True
    with session() as s:
        probabilities = s.run(softmax)
        for _ in range(n // DRAWS_AT_ONCE):
            drawn = s.run(samples)
            counts += drawn.sum(0)
            is_one_hot &= bool((np.sort(drawn) == [0] * (len(logits) - 1) + [1]).all())
    shares = [frequency(count / n, n, p) for count, p in zip(counts, probabilities)]
    return {"freq": shares, "softmax": probabilities, "one_hot_output": is_one_hot}


if __name__ == "__main__":
    write(record)
