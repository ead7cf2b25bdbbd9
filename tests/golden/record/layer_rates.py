"""Records the learning rate of every variable in finetuning, as a multiple of that of the head, and the initializers of
the head (F37, F43).
"""
import configure_finetuning
import run_finetuning
from model import optimization
from recording import initializer, replaced, set_step_from_outside, tf, write

from finetune import task_builder


def record():
    yield "layer_lrs.json", {size: of_size(size) for size in ("small", "base", "large")}


def of_size(size):
    tf.reset_default_graph()
    set_step_from_outside()
    config = configure_finetuning.FinetuningConfig("record", "/nowhere", model_size=size, task_names=["mnli"])
    with replaced(task_builder.tokenization, FullTokenizer=lambda *_, **__: None):
        tasks = task_builder.get_tasks(config)
    features = {name: tf.zeros([2, 128], tf.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    features.update({name: tf.zeros([2], tf.int32) for name in ("task_id", "mnli_eid", "mnli_label_ids")})
    model = run_finetuning.FinetuningModel(config, tasks, False, features, 1000)
    layers, decay = model.bert_config.num_hidden_layers, config.layerwise_lr_decay
    seen = {}

    def note(self, gradients_and_variables, rate):
        seen.update({variable.op.name: rate for gradient, variable in gradients_and_variables if gradient is not None})
        return []

    with replaced(optimization.AdamWeightDecayOptimizer, _apply_gradients=note), \
            replaced(tf.train, polynomial_decay=lambda rate, *_, **__: rate), \
            replaced(tf, minimum=lambda *_: 1.):
        optimization.create_optimizer(model.loss, 1., 1000, weight_decay_rate=.01, warmup_proportion=.1,
                                      layerwise_lr_decay_power=decay, n_transformer_layers=layers)
    return {
        "decay": decay,
        "default_lr": config.learning_rate,
        "by_key": optimization._get_layer_lrs(1., decay, layers),
        "per_variable": seen,
        "n_vars": len(tf.trainable_variables()),
        "head_init": {name: initializer(variable) for variable in tf.trainable_variables()
                      for name in [variable.op.name] if name.startswith("task_specific/")},
    }


if __name__ == "__main__":
    write(record)
