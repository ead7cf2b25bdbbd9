"""The name under which the objective of a run is recorded."""


def name_of_run(run, parts):
    """The name of the objective of a run, for which kinds.py has the Objective.

    run: configuration of pretrain.py, or Google's hparams; that of an early version, or of electra_pytorch, has no
    objective.
    parts: networks in its checkpoints.
    """
    if run.get("uniform_generator"):
        return "uniform_generator"
    return run.get("objective") or ("electra" if "discriminator" in parts else "mlm")
