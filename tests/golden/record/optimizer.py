"""Records Adam over twenty steps of fixed gradients, and learning rates by step (F31-F35)."""
import numpy as np
from model import optimization
from recording import replaced, session, set_step_from_outside, stored, tf, with_bars, write

DECAYED = {"weight_decay_rate": .01, "exclude_from_weight_decay": ["LayerNorm", "layer_norm", "bias"]}
CLIPPED = "create_optimizer_lr1e-2_N100_warm5_wd.01_clip1"


def record():
    rule, trajectory = stored("adam_rule.json"), stored("adam_trajectory.npz")
    yield "adam_trajectory.npz", dict(
        [*twenty_updates("direct_lr1e-2_wd.01_noclip", rule["names"], trajectory, directly),
         *twenty_updates(CLIPPED, rule["names"], trajectory, through_create_optimizer)])
    arguments = {"learning_rate": 1e-2, "num_train_steps": 100, "warmup_steps": 5}
    at_step = rates(arguments, range(21))
    yield "adam_rule.json", {"lr_at_step": at_step[:20], "lr_at_step_plus_1": at_step[1:]}
    yield "lr_schedule.json", {name: schedule(values) for name, values in stored("lr_schedule.json").items()}
    powers, settings = {}, stored("variants/lr_decay_power.json")
    del settings["formula_max_rel_err_power_2"]
    for name, values in settings.items():
        arguments = {key: values[key] for key in ("learning_rate", "num_train_steps", "lr_decay_power")}
        powers[name] = {"lr": rates(dict(arguments, warmup_steps=values["num_warmup_steps"]), values["steps"])}
    yield "variants/lr_decay_power.json", powers


def directly(gradients, variables):
    """The update with Google's optimizer alone."""
    optimizer = optimization.AdamWeightDecayOptimizer(learning_rate=1e-2, **DECAYED)
    return optimizer.apply_gradients(list(zip(gradients, variables)), global_step=tf.train.get_or_create_global_step())


def through_create_optimizer(gradients, variables):
    """The update of Google's training, with schedule and clipping. The loss has the given gradients."""
    loss = tf.add_n([tf.reduce_sum(variable * g) for variable, g in zip(variables, gradients)])
    return optimization.create_optimizer(loss, 1e-2, 100, weight_decay_rate=.01, warmup_steps=5)


def twenty_updates(run, names, trajectory, build):
    """Yield (name, array) of the parameters before and after each update, and of both moments."""
    tf.reset_default_graph()
    step = set_step_from_outside()
    variables = [tf.get_variable(name, initializer=trajectory[f"{run}/param/{with_bars(name)}"][0])
                 for name in names]
    gradients = [tf.placeholder(tf.float32, variable.shape) for variable in variables]
    update = build(gradients, variables)
    moments = {variable.op.name: variable for variable in tf.global_variables()}
    history = {}
    with session() as s:
        for i in range(21):
            if i:
                step.load(i, s)
                values = [trajectory["grads/" + with_bars(name)][i - 1] for name in names]
                s.run(update, dict(zip(gradients, values)))
            for name in names:
                kept = {"param": name, "m": name + "/adam_m", "v": name + "/adam_v"} if i else {"param": name}
                for kind, variable in kept.items():
                    key = f"{run}/{kind}/{with_bars(name)}"
                    history.setdefault(key, []).append(s.run(moments[variable]))
    for key, arrays in history.items():
        yield key, np.stack(arrays)


def rates(arguments, steps):
    """The learning rates that create_optimizer passes to Adam at some steps; by layer, dictionaries."""
    tf.reset_default_graph()
    step, seen, init = set_step_from_outside(), [], optimization.AdamWeightDecayOptimizer.__init__

    def note(self, learning_rate, **options):
        seen.append(learning_rate)
        init(self, learning_rate=learning_rate, **options)

    loss = tf.reduce_sum(tf.get_variable("task_specific/w", [1])) ** 2
    with replaced(optimization.AdamWeightDecayOptimizer, __init__=note):
        optimization.create_optimizer(loss, **arguments)
    with session() as s:
        found = []
        for value in steps:
            step.load(value, s)
            found.append(s.run(seen[0]))
    return found


def schedule(values):
    """Learning rates for an entry of lr_schedule.json."""
    arguments = dict(values["args"])
    if "layerwise" not in arguments:
        return {"lr": rates(arguments, values["global_step"])}
    arguments["layerwise_lr_decay_power"] = arguments.pop("layerwise")
    arguments["n_transformer_layers"] = arguments.pop("n_layers")
    return {"lr_by_key": rates(arguments, values["global_step"])}


if __name__ == "__main__":
    write(record)
