"""Two-stage training: the generator is trained alone, then the discriminator, which starts from its weights.

The generator's weights stay fixed in the second stage (paper, section 3.2).
"""
import copy
import gc

import torch

from _utils.networks.build import build_network, initialize_officially
from _utils.networks.pretrained import load_with_head
from _utils.objectives.base import AS_DISCRIMINATOR, AS_GENERATOR, BY_DETECTION, Objective
from _utils.recipes import RECIPES
from _utils.runs.checkpoints import is_finished
from _utils.runs.log import RunFolder, locked


class TwoStage(Objective):
    training = {"discriminator": f"{BY_DETECTION}, {AS_DISCRIMINATOR} in two stages, after its generator",
                "generator": f"{AS_GENERATOR} in two stages, before its discriminator"}

    def first_stage(self, c, processes, pretrain):
        """The first stage is a separate run, <base_run_name>_generator, which can be resumed too."""
        warmup = lambda steps: round(c.warmup_steps * steps / c.steps)
        name, steps = f"{c.base_run_name}_generator", c.two_stage_steps
        if processes.is_main and not c.resume:  # else the second one would continue if the first one is interrupted
            second = RunFolder(c.base_run_name, c.seed)
            with locked(second.folder):
                second.archive()
        first = c.copy_with({"objective": "mlm", "base_run_name": name, "steps": steps, "warmup_steps": warmup(steps),
                             "stop_at": None})
        if not is_finished(first, RunFolder(name, c.seed)):
            pretrain(first, processes)
        gc.collect()  # the learner is part of a reference cycle
        torch.cuda.empty_cache()
        rest, generator = c.steps - steps, str(RunFolder(name, c.seed).milestone(100.))
        return c.copy_with({"initial_weights": generator, "vocab": generator, "steps": rest,
                            "warmup_steps": warmup(rest)})

    def load_pair(self, c):
        """(generator, discriminator) of the second stage. The generator is frozen; the other starts from its weights.
        """
        generator, _, _, run = load_with_head(c.initial_weights, "generator")
        generator.requires_grad_(False)
        discriminator = build_network("discriminator", copy.deepcopy(generator.config))
        if run["initial_weights"] == "official":
            initialize_officially(discriminator, RECIPES[run["size"]].initializer_range)  # of which the head stays
        discriminator.base_model.load_state_dict(generator.base_model.state_dict())
        return generator, discriminator
