"""Records the variables of the pretraining graph: shape, initializer, weight decay, and numbers of parameters
(F24-F30).
"""
import json
import re

import configure_pretraining
import numpy as np
import run_pretraining
from model import optimization
from recording import initializer, stored, tf, vocab_file, write

NAMES = {"electra": "n_disc_transformer", "discriminator_predictions": "n_disc_head", "generator": "n_generator_own",
         "generator_predictions": "n_gen_head"}
SPECIAL = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}


def record():
    recorded = {}
    for name, values in stored("variables.json").items():
        is_size = "config" in values
        model = build(values["config"] if is_size else json.loads(name))
        recorded[name] = sizes(*model) if is_size else {"n_total": n_parameters(""), "scopes": scopes()}
        if name == "small":
            add_weight_decay(recorded[name]["variables"])
        elif is_size:  # of the layers, only the first is stored
            recorded[name]["variables"] = [variable for variable in recorded[name]["variables"]
                                           if not re.search("layer_[1-9]", variable["name"])]
    yield "variables.json", recorded


def build(hparams):
    """(PretrainingConfig, PretrainingModel) on two rows."""
    tf.reset_default_graph()
    config = configure_pretraining.PretrainingConfig("record", "/nowhere", vocab_file=vocab_file(SPECIAL, 30522),
                                                     **hparams)
    rows = tf.ones([2, config.max_seq_length], tf.int32)
    features = {name: rows for name in ("input_ids", "input_mask", "segment_ids")}
    return config, run_pretraining.PretrainingModel(config, features, True)


def sizes(config, model):
    generator = run_pretraining.get_generator_config(config, model._bert_config)
    return dict(
        {key: n_parameters(scope + "/") for scope, key in NAMES.items()},
        max_predictions_per_seq=config.max_predictions_per_seq,
        disc=vars(model._bert_config),
        gen=vars(generator),
        embedding_size=config.embedding_size,
        n_total=n_parameters(""),
        n_shared_embeddings=n_parameters("electra/embeddings/"),
        variables=[{"name": v.op.name, "shape": v.shape.as_list(), "init": initializer(v)}
                   for v in tf.trainable_variables()],
    )


def add_weight_decay(variables):
    """Whether weight decay applies to each variable, as create_optimizer sets it (F34)."""
    optimizer = optimization.AdamWeightDecayOptimizer(
        1., weight_decay_rate=.01, exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"])
    for variable in variables:
        variable["weight_decay"] = optimizer._do_use_weight_decay(variable["name"])


def n_parameters(scope):
    return int(sum(np.prod(v.shape.as_list()) for v in tf.trainable_variables() if v.op.name.startswith(scope)))


def scopes():
    """The parts of a network: the first two levels of the names of variables."""
    return sorted({"/".join(v.op.name.split("/")[:2]) for v in tf.trainable_variables()})


if __name__ == "__main__":
    write(record)
