"""Records the question answering module in eight modes, its beams, final texts, scores of texts, thresholds and
defaults (F63-F80).
"""
import configure_finetuning
import numpy as np
import run_finetuning
from finetune.qa import mrqa_official_eval, qa_metrics, qa_tasks, squad_official_eval, squad_official_eval_v1
from recording import dense_gradients, drawn, load_micro_weights, replaced, session, stored, tf, vocab_file, write

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
TASKS = {"squad": qa_tasks.SQuAD, "squadv1": qa_tasks.SQuADv1}
SHARED_INPUTS = ("input_ids", "input_mask", "segment_ids")
LENGTH = 64


def record():
    values, arrays = stored("questions.json"), stored("questions.npz")
    modes, outputs = {}, {}
    for name, mode in values["modes"].items():
        module = Module(mode, arrays, is_training=True)
        modes[name], of_mode = module.step("initial_values" in mode)
        outputs.update({f"train|{name}|{key}": array for key, array in of_mode.items()})
    for beam in (4, 20):
        of_beam = Module(values["modes"]["joint"], arrays, is_training=False, beam_size=beam).beams()
        outputs.update({f"eval_beam{beam}|joint|{key}": array for key, array in of_beam.items()})
    yield "questions.npz", outputs
    yield "questions.json", {
        "modes": modes,
        "get_final_text": [final_texts(case) for case in values["get_final_text"]],
        "normalize": [normalized(case["text"]) for case in values["normalize"]],
        "pairs": [scored(case) for case in values["pairs"]],
        "thresholds": [thresholds(case) for case in values["thresholds"]],
        "defaults": {key: getattr(configuration("squad"), key) for key in values["defaults"]},
    }


def configuration(task, **hparams):
    return configure_finetuning.FinetuningConfig("record", "/nowhere", task_names=[task], **hparams)


class Module:
    """The module with the stored weights on the stored batch, without dropout in the encoder.

    mode: of questions.json.   is_training: whether ends depend on the true start (F69).
    """

    def __init__(self, mode, arrays, is_training, **hparams):
        tf.reset_default_graph()
        name, self.arrays = mode["task"], arrays
        overrides = dict(SIZES, hidden_dropout_prob=0., attention_probs_dropout_prob=0.)
        config = configuration(name, model_size="small", vocab_size=2000, max_seq_length=LENGTH, embedding_size=16,
                               vocab_file=vocab_file({}, 2000), model_hparam_overrides=overrides,
                               **dict(mode["config"], **hparams))
        prefix = f"batch_{name}|"
        rows = {key[len(prefix):]: values for key, values in arrays.items() if key.startswith(prefix)}
        rows["eid"] = np.arange(len(rows["input_ids"]))
        features = {key if key in SHARED_INPUTS else f"{name}_{key}": tf.constant(values.astype("int32"))
                    for key, values in rows.items()}
        features["task_id"] = tf.zeros([len(rows["eid"])], tf.int32)
        self.model = run_finetuning.FinetuningModel(config, [TASKS[name](config, None)], is_training, features, 100)
        self.outputs, self.scope = self.model.outputs[name], f"task_specific/{name}/"
        self.weights = {self.scope + key: arrays["heads|" + head] for key, head in mode["head_values"].items()}

    def step(self, with_initial_values):
        """(values of questions.json, {name: array}) of a training step."""
        gradients, norm = dense_gradients(self.model.loss)
        names = [name for name in ("start_logits", "end_logits", "answerable_logit", "loss") if name in self.outputs]
        with session() as s:
            initial = {v.op.name: s.run(v) for v in tf.trainable_variables() if v.op.name in self.weights}
            load_micro_weights(s, self.weights)
            found, of_variables, clip_norm, loss = s.run(
                [{name: self.outputs[name] for name in names}, gradients, norm, self.model.loss])
        values = {"loss_sum": loss, "clip_norm": clip_norm,
                  "gradient_norms": {name.replace(self.scope, ""): np.linalg.norm(array.astype("float64"))
                                     for name, array in of_variables.items() if not name.endswith("key/bias")}}
        if with_initial_values:
            values["initial_values"] = {name.replace(self.scope, ""): largest(array) for name, array in initial.items()}
        return values, found

    def beams(self):
        names = ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index")
        with session() as s:
            load_micro_weights(s, self.weights)
            return s.run({name: self.outputs[name] for name in names})


def largest(array):
    """The largest absolute value of initial weights: of n uniform ones, about 1 / n below the limit (F65)."""
    value = np.abs(array).max()
    return drawn(value, 2 * value / array.size if value else 0.)


def final_texts(case):
    with replaced(qa_metrics.utils, log=lambda *_: None):
        return {key: qa_metrics.get_final_text(configuration("squad", do_lower_case=key == "lower"),
                                               case["pred"], case["orig"]) for key in ("lower", "cased")}


def normalized(text):
    scripts = {"v2": squad_official_eval, "v1": squad_official_eval_v1, "mrqa": mrqa_official_eval}
    return {key: script.normalize_answer(text) for key, script in scripts.items()}


def scored(case):
    pair, found = (case["pred"], case["gold"]), {}
    found["v2_exact"] = squad_official_eval.compute_exact(case["gold"], case["pred"])
    found["v2_f1"] = squad_official_eval.compute_f1(case["gold"], case["pred"])
    for key, script in (("v1", squad_official_eval_v1), ("mrqa", mrqa_official_eval)):
        found[key + "_exact"], found[key + "_f1"] = script.exact_match_score(*pair), script.f1_score(*pair)
    return found


def thresholds(case):
    script, (scores, odds, answerable) = squad_official_eval, (case[key] for key in ("scores", "na_odds", "has_ans"))
    best_score, best_threshold = script.find_best_thresh(case["preds"], scores, odds, answerable)
    applied = {}
    for threshold in case["applied"]:
        after = script.apply_no_ans_threshold(scores, odds, answerable, float(threshold))
        applied[threshold] = {"scores": after, "eval": script.make_eval_dict(after, after)}
    return {"best_score": best_score, "best_thresh": best_threshold, "applied": applied}


if __name__ == "__main__":
    write(record)
