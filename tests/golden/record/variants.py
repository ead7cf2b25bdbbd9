"""Records one step with each of Google's flags, and operation counts (F88-F93, F98-F103)."""
import flops_computation
import numpy as np
from pretraining_graph import Graph
from recording import dense_gradients, load_micro_weights, norm_of, session, statistics, stored, tf, write


def record():
    recorded = {}
    for name, values in stored("variants/variants.json").items():
        arrays, recorded[name] = one_step(name, values["hparams"])
        yield f"variants/{name}.npz", arrays
    yield "variants/variants.json", recorded
    options = stored("variants/flops.json")["electra_options"]
    yield "variants/flops.json", {
        "printed": flops_computation.MODEL_FLOPS,
        "electra_options": {
            name: {"flops": flops_computation.get_electra_train_flops(*values["args"], **values["kwargs"])}
            for name, values in options.items()},
    }


def one_step(name, hparams):
    """({name: array} of the .npz file, the values of variants.json) of a variant."""
    batch, known = stored("micro_ckpt/pretrain_step.npz"), stored(f"variants/{name}.npz")
    graph = Graph(batch, known, **hparams)
    tensors, logits = graph.tensors(), {"slots": graph.slot_logits, "cloze": tf.zeros([])}
    if graph.cloze is not None:
        tensors.update(cloze_loss=graph.cloze.loss, cloze_per_token=graph.cloze.per_example_loss,
                       cloze_weights=graph.cloze.weights, mlm_per_slot=graph.model.mlm_output.per_example_loss)
        logits["cloze"] = graph.cloze.logits
    gradients, _ = dense_gradients(graph.model.total_loss)
    own = {key[len("param|"):].replace("|", "/"): array for key, array in known.items() if key.startswith("param|")}
    with session() as s:
        load_micro_weights(s, own)
        values, of_variables, logits = s.run([tensors, gradients, logits])
    if graph.cloze is not None:
        values.update(mlm_logsumexp=log_sum_exp(logits["slots"]), cloze_logsumexp=log_sum_exp(logits["cloze"]))
    if "log_q" in known:
        of_fake = np.take_along_axis(logits["cloze"], values["fake_input_ids"][..., None], -1)[..., 0]
        values["log_q"] = of_fake - values["cloze_logsumexp"]
    summary = {
        "n_parameters": int(sum(np.prod(v.shape.as_list()) for v in tf.trainable_variables())),
        "grad_global_norm": norm_of(of_variables.values()),
        "grad_stats": {variable: statistics(gradient) for variable, gradient in of_variables.items()},
    }
    return {key: array for key, array in values.items() if key in known}, summary


def log_sum_exp(logits):
    logits = logits.astype("float64")
    largest = logits.max(-1)
    return largest + np.log(np.exp(logits - largest[..., None]).sum(-1))


if __name__ == "__main__":
    write(record)
