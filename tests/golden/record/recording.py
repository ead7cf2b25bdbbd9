"""What the recorders share: Google's code in TensorFlow 1.15, the recorded files, weights and statistics.

A recorder is a program with a function `record()` that yields (file below official/, its values). `write` saves them.
Python 3.7, because of TensorFlow 1.15.
"""
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)

OFFICIAL = Path(__file__).resolve().parents[1] / "official"
SHARED = OFFICIAL.parents[3] / "shared"  # texts that are not published; may be missing
MICRO = OFFICIAL / "micro_ckpt"


def stored(file):
    """The stored content of a JSON file, or {name: array} of an .npz file, of which a recorder reads its inputs."""
    path = OFFICIAL / file
    return json.loads(path.read_text(encoding="utf-8")) if path.suffix == ".json" else dict(np.load(path))


def write(recorder):
    """Save what a recorder yields in the folder that the command line names."""
    for file, values in recorder():
        path = Path(sys.argv[1], file)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".json":
            path.write_text(json.dumps(values, default=plain))
        else:
            np.savez_compressed(str(path), **values)


def plain(value):
    """An array or number of NumPy for JSON."""
    return value.tolist()


def drawn(value, error):
    """A value from a random draw, with the standard error of the difference of two such values."""
    return {"drawn": float(value), "error": float(error)}


def frequency(share, n, probability=None):
    """A share of n random draws; probability: the true one, if it is known."""
    p = share if probability is None else probability
    return drawn(share, np.sqrt(2 * max(p * (1 - p), 1 / n) / n))


@contextlib.contextmanager
def session():
    """A session in a single thread, with all variables initialized."""
    with tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)) as s:
        s.run(tf.global_variables_initializer())
        yield s


@contextlib.contextmanager
def replaced(owner, **functions):
    """Context in which attributes of a module or class are replaced."""
    before = {name: getattr(owner, name) for name in functions}
    for name, function in functions.items():
        setattr(owner, name, function)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(owner, name, function)


def load_micro_weights(s, others=None):
    """Load all trainable variables: {name: array} of `others`, else those of micro_ckpt with the same name and shape.

    KeyError for a variable that has neither.
    """
    reader = tf.train.NewCheckpointReader(str(MICRO / "model.ckpt-200"))
    shapes = reader.get_variable_to_shape_map()
    for variable in tf.trainable_variables():
        name, shape = variable.op.name, variable.shape.as_list()
        if name in (others or {}):
            weight = others[name]
        elif shapes.get(name) == shape:
            weight = reader.get_tensor(name)
        else:
            raise KeyError(name)
        variable.load(np.asarray(weight, "float32"), s)


def vocab_file(ids, size):
    """The path of a new vocab.txt with [unused0], [unused1] ... except for {token: id}."""
    tokens = [f"[unused{i}]" for i in range(size)]
    for token, i in ids.items():
        tokens[i] = token
    path = os.path.join(tempfile.mkdtemp(), "vocab.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(tokens) + "\n")
    return path


def micro_vocab():
    """A vocab.txt with the special tokens of micro_ckpt; its other tokens are not needed."""
    config = stored("micro_ckpt/config.json")
    return vocab_file(config["special_ids"], config["bert_config"]["vocab_size"])


def statistics(array):
    """Norm, sum and cosine-weighted sum."""
    values = np.asarray(array, "float64").ravel()
    return [np.linalg.norm(values), values.sum(), (values * np.cos(np.arange(values.size))).sum()]


def dense_gradients(loss):
    """({variable: its gradient as a tensor}, the norm by which clip_by_global_norm divides)."""
    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, variables)
    used = {v.op.name: tf.convert_to_tensor(g) for v, g in zip(variables, gradients) if g is not None}
    return used, tf.global_norm(gradients)


def norm_of(arrays):
    """The norm of all arrays together."""
    return np.sqrt(sum((np.asarray(array, "float64") ** 2).sum() for array in arrays))


def initializer(variable):
    """The distribution from which a variable is initialized, read from the graph."""
    start = variable.op.name + "/Initializer/"
    constants = {op.name[len(start):]: tf.make_ndarray(op.node_def.attr["value"].tensor)
                 for op in tf.get_default_graph().get_operations()
                 if op.name.startswith(start) and op.type == "Const"}
    if "truncated_normal/mean" in constants:
        mean, std = (float(constants["truncated_normal/" + name]) for name in ("mean", "stddev"))
        return f"truncated_normal(mean {mean:g}, std {std:g}, cut at 2 std, not rescaled)"
    if "random_uniform/min" in constants:
        low, high = (float(constants["random_uniform/" + name]) for name in ("min", "max"))
        return f"glorot_uniform[{low:.6g}, {high:.6g}]"
    [value] = {float(array) for name, values in constants.items() if "shape" not in name for array in values.ravel()}
    return f"constant {value:g}"


def with_bars(name):
    """A variable's name as part of a name in an .npz file."""
    return name.replace("/", "|")


def set_step_from_outside():
    """The global step, which updates no longer advance: it is chance whether they read a rate before or after (F32)."""
    step = tf.train.get_or_create_global_step()
    step.assign = lambda value: tf.no_op()
    return step
