"""Records outputs of both networks of micro_ckpt, and one pretraining step with its losses, every gradient, and every
weight after the update (F12-F22, F29, F33-F35).
"""
import numpy as np
import run_pretraining
from model import optimization
from pretraining_graph import INPUTS, Graph
from recording import dense_gradients, load_micro_weights, session, stored, tf, with_bars, write


def record():
    yield "micro_ckpt/forward.npz", dict([*outputs("b0", 1), *outputs("b1", 5)])
    yield from one_step()


def outputs(batch, row):
    """Yield (name, array) of both networks for a batch. row: whose logits are stored."""
    inputs = {name: stored("micro_ckpt/forward.npz")[f"{batch}_{name}"] for name in INPUTS}
    none = np.zeros((len(inputs["input_ids"]), 4), "int32")  # updates of position 0 are ignored (F11)
    draws = {"masked_lm_positions": none, "masked_input_ids": inputs["input_ids"], "sampled_ids": none}
    graph = Graph(inputs, draws)
    generator, discriminator = graph.networks
    with tf.variable_scope("generator_predictions", reuse=True):
        logits = run_pretraining.get_token_logits(
            generator.get_sequence_output(), generator.get_embedding_table(), graph.model._bert_config)
    with session() as s:
        load_micro_weights(s)
        hidden, disc_hidden, disc_logits, logits = s.run(
            [generator.get_sequence_output(), discriminator.get_sequence_output(), graph.disc_logits, logits])
    of_input = np.take_along_axis(logits, inputs["input_ids"][..., None], -1)[..., 0]
    largest = logits.max(-1).astype("float64")
    found = {
        "disc_logits": disc_logits,
        "gen_hidden": hidden,
        "disc_hidden": disc_hidden,
        "gen_logsumexp": largest + np.log(np.exp(logits - largest[..., None]).sum(-1)),
        "gen_argmax": logits.argmax(-1),
        "gen_logit_of_input": of_input,
        f"gen_logits_row{row}": logits[row],
    }
    for name, values in found.items():
        yield f"{batch}_{name}", values


def one_step():
    batch, settings = stored("micro_ckpt/pretrain_step.npz"), stored("micro_ckpt/config.json")["after_step"]
    graph = Graph(batch, batch)
    tensors = graph.tensors()
    mlm = graph.model.mlm_output
    tensors.update({
        "mlm_per_example": mlm.per_example_loss,
        "mlm_logits_first2": mlm.logits[:2],
        "disc_per_example": graph.disc.per_example_loss,
    })
    gradients, norm = dense_gradients(graph.model.total_loss)
    variables = tf.trainable_variables()
    clipped, _ = tf.clip_by_global_norm(tf.gradients(graph.model.total_loss, variables), settings["clip_norm"])
    optimizer = optimization.AdamWeightDecayOptimizer(
        settings["learning_rate"], weight_decay_rate=settings["weight_decay_rate"],
        exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"])
    update = optimizer.apply_gradients(list(zip(clipped, variables)), global_step=tf.train.get_or_create_global_step())
    with session() as s:
        load_micro_weights(s)
        values, of_variables, global_norm = s.run([tensors, gradients, norm])
        s.run(update)
        after = {v.op.name: s.run(v) for v in variables}
    yield "micro_ckpt/pretrain_step.npz", dict(values, grad_global_norm=global_norm)
    for file, kind, found in (("pretrain_grads", "grad", of_variables), ("after_step", "param", after)):
        yield f"micro_ckpt/{file}.npz", {
            f"{kind}|{with_bars(name)}": array for name, array in found.items()}


if __name__ == "__main__":
    write(record)
