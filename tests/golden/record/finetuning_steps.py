"""Records finetuning steps from micro_ckpt without dropout: summed losses, the norm that clips, and statistics of every
gradient and weight (F35, F43-F46).
"""
import configure_finetuning
import numpy as np
import run_finetuning
from model import optimization
from recording import (
    dense_gradients,
    load_micro_weights,
    micro_vocab,
    norm_of,
    replaced,
    session,
    set_step_from_outside,
    statistics,
    stored,
    tf,
    write,
)

from finetune import task_builder

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
LENGTH = 32
INPUTS = ("input_ids", "input_mask", "segment_ids")


def record():
    arrays, settings = stored("finetuning_steps.npz"), stored("finetuning_steps.json")
    recorded, outputs = {}, {}
    for task in settings["tasks"]:
        recorded[task], outputs_of_task = steps(task, arrays, settings)
        outputs.update(outputs_of_task)
    yield "finetuning_steps.npz", outputs
    yield "finetuning_steps.json", {"tasks": recorded}


def steps(name, arrays, settings):
    """(the values of a task as in finetuning_steps.json, {name in finetuning_steps.npz: outputs})."""
    tf.reset_default_graph()
    step = set_step_from_outside()
    config = configure_finetuning.FinetuningConfig(
        "record", "/nowhere", model_size="small", task_names=[name], vocab_size=2000, max_seq_length=LENGTH,
        embedding_size=16, vocab_file=micro_vocab(), model_hparam_overrides=SIZES)
    tasks = task_builder.get_tasks(config)
    is_score = name == "sts"
    label, output = (name + "_targets", "predictions") if is_score else (name + "_label_ids", "logits")
    holders = {key: tf.placeholder(tf.int32, [None, LENGTH]) for key in INPUTS}
    holders.update({key: tf.placeholder(tf.int32, [None]) for key in ("task_id", name + "_eid")})
    holders[label] = tf.placeholder(tf.float32 if is_score else tf.int32, [None])
    total = settings["num_train_steps"]
    model = run_finetuning.FinetuningModel(config, tasks, False, holders, total)
    gradients, norm = dense_gradients(model.loss)
    rates = []
    update = noted_update(rates, model.loss, settings)
    head = {variable: arrays["{}/head/{}".format(name, variable.split("/")[-1])]
            for variable in settings["tasks"][name]["head_variables"]}
    values, outputs, head_rates = [], {}, []
    with session() as s:
        load_micro_weights(s, head)
        for i in settings["global_step"]:
            feed = batch(name, i, arrays, settings["n_padding_rows"], label)
            feed = {holders[key]: value for key, value in feed.items()}
            step.load(i, s)
            loss, of_rows, clip_norm, of_variables = s.run([model.loss, model.outputs[name][output], norm, gradients],
                                                           feed)
            head_rates.append(s.run(rates[0])["task_specific/"])
            s.run(update, feed)
            key = f"{name}/{i}/"
            outputs[key + "outputs"] = of_rows[:len(arrays[key + "rows"])]
            values.append({
                "loss_sum": loss,
                "clip_norm": clip_norm,
                "true_norm": norm_of(of_variables.values()),
                "gradients": {variable: statistics(gradient) for variable, gradient in of_variables.items()},
                "parameters": {variable.op.name: statistics(s.run(variable)) for variable in tf.trainable_variables()},
            })
    return {"head_variables": list(head), "head_learning_rate": head_rates, "steps": values}, outputs


def noted_update(rates, loss, settings):
    """Google's training operation; appends its learning rates by layer to a list."""
    init = optimization.AdamWeightDecayOptimizer.__init__

    def note(self, learning_rate, **options):
        rates.append(learning_rate)
        init(self, learning_rate=learning_rate, **options)

    with replaced(optimization.AdamWeightDecayOptimizer, __init__=note):
        return optimization.create_optimizer(
            loss, settings["learning_rate"], settings["num_train_steps"],
            weight_decay_rate=settings["weight_decay_rate"], warmup_proportion=settings["warmup_proportion"],
            layerwise_lr_decay_power=settings["layerwise_lr_decay"],
            n_transformer_layers=SIZES["num_hidden_layers"])


def batch(name, i, arrays, n_padding, label):
    """The recorded rows of a step, and Google's padding rows: zeros with the id of no task (F46)."""
    rows, labels = (arrays[f"{name}/{i}/{key}"] for key in ("rows", "labels"))
    texts = stored("micro_ckpt/pretrain_step.npz")
    padded = lambda values, width=0: np.pad(values, [(0, n_padding)] + [(0, 0)] * width, "constant")
    feed = {key: padded(texts[key][rows], 1) for key in INPUTS}
    if name == "cola":
        feed["segment_ids"][:] = 0
    feed.update({"task_id": np.repeat([0, 1], [len(rows), n_padding]), name + "_eid": padded(rows),
                 label: padded(labels)})
    return feed


if __name__ == "__main__":
    write(record)
