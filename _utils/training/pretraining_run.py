"""A pretraining run around its steps: checks, lock, resuming, micro-batches, milestones, log, plots."""
import itertools
import json
import os
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import torch

from _utils import plots
from _utils.config import NETWORKS_AND_VOCABULARY, continued_steps, with_schedule
from _utils.errors import UserError
from _utils.files import check_writable, content_key, file_chunks, write_text_atomically
from _utils.names import checkpoint_at
from _utils.networks.build import count_parameters, has_learned_positions, transformers_in
from _utils.networks.pretrained import add_tokens
from _utils.objectives.objective_keys import ELECTRA, KEYS, selected
from _utils.objectives.registry import objective_of
from _utils.optim import restore_moments
from _utils.progress import counted
from _utils.runs.checkpoints import FORMAT, OTHERWISE, resume, save_pretrained, saved_networks
from _utils.runs.definitions import changed_definitions, definitions_of
from _utils.runs.log import RunFolder, RunLog, locked, upload
from _utils.schedules import UNUSED_KEYS
from _utils.seeds import set_seed
from _utils.text import (
    example_lengths,
    load_documents,
    load_tokenizer,
    long_lines_of,
    unigram_entropy,
    warn_of_repetition,
)
from _utils.text.pretraining_data import corpora_of, with_commits
from _utils.text.special_tokens import content_of, never_masked
from _utils.training.callbacks import Milestones, ResumeCheckpoint, StopSignals, TrainingLog
from _utils.training.corrupted_text import measure, report
from _utils.training.cuda_graph import check_compiler, keep_compiled
from _utils.training.device import choose_device, choose_precision, faster_setting, micro_batch_size
from _utils.training.processes import Processes


def contents_of(c, keys=("datas", *NETWORKS_AND_VOCABULARY)):
    """{key: hash of the files} for those of the keys that name files: they are what makes a run, wherever they are."""
    found = {"datas": [corpus.key for corpus in corpora_of(c)]} if "datas" in keys else {}
    for key in {*keys} & {*NETWORKS_AND_VOCABULARY}:
        if files := files_of(c[key]):
            chunks = itertools.chain.from_iterable(map(file_chunks, files.values()))
            found[key] = content_key([(name, os.stat(path).st_size) for name, path in files.items()], chunks)
    return found


def files_of(name):
    """{path inside the folder, or "": path} of a checkpoint, a file or a folder; empty for other values of a key."""
    if not isinstance(name, str):
        return {}
    if path := checkpoint_at(name):
        return {"": path}
    path = Path(name)
    return {str(file.relative_to(path)): file for file in sorted(path.rglob("*")) if file.is_file()}


@contextmanager
def pretraining_run(c, pretrain, processes=None):
    """Context of a run of a completed configuration; a PretrainingRun.

    pretrain: the function of a configuration and processes that uses this context, for an earlier stage.
    processes: that train together; None: those that a launcher started.
    Raises UserError before any long work if the configuration, the files or the hardware do not allow the run.
    """
    given, processes = processes, processes or Processes(c.device)
    definitions = definitions_of(pretrain)  # before a file may be edited during an earlier stage
    if first_stage := objective_of(c).first_stage:
        c = first_stage(c, processes, pretrain)
    with ExitStack() as stack:
        yield PretrainingRun(c, processes, stack, definitions)
    processes.wait()  # until the main process has saved everything, which may be another run's start
    if given is None:
        processes.close()


class PretrainingRun:
    """A run that starts, or that is resumed. Raises UserError for what would fail later.

    No other process can train it until the ExitStack `stack` is closed.
    c: its configuration, which `start` and `training` complete.   networks: trained ones to continue from, or None.
    definitions: of the notebook, which it runs.   run_folder: RunFolder.   checkpoint: to resume from, or None.
    """

    def __init__(self, c, processes, stack, definitions):
        self.processes, self.stack, self.definitions = processes, stack, definitions
        self.run_folder = RunFolder(c.base_run_name, c.seed)
        device = processes.device(choose_device(c.device))
        if device.type == "cuda":
            torch.cuda.set_device(device)  # streams and CUDA graphs belong to the current device
        check_writable("datasets", self.run_folder.folder)
        if processes.is_main:
            stack.enter_context(locked(self.run_folder.folder))
        with processes.main_first():  # which records the hashes of files that it reads
            # With the steps and the micro-batch of an earlier start.
            c = c.copy_with({"device": str(device)})
            c, self.checkpoint = resume(c, self.run_folder, contents_of)
            self.c = with_commits(c)
        if c.compile:
            check_compiler()
            keep_compiled()
        processes.share(1, c.bs)  # at least one example for each process
        if self.run_folder.has_milestone(c.initial_weights):
            raise UserError(f"initial_weights={c.initial_weights!r} is a checkpoint of the run {self.run_folder.name}, "
                            "which would be moved aside by the new one. Set another base_run_name.")
        set_seed(c.seed)  # of what is new beside trained weights: a generator, or a discriminator's head
        self.networks = objective_of(c).trained(self.c)

    def start(self, hf_tokenizer, dls):
        """Fit trained networks to the vocabulary, and tell the DataLoaders the device.

        Returns the configuration, with what it leaves to the text and the hardware.
        """
        c, self.hf_tokenizer = self.c, hf_tokenizer
        if self.networks:
            add_tokens(self.networks, load_tokenizer(c.initial_weights), hf_tokenizer)
        if c.steps is None:  # in continued pretraining; a resumed run keeps its steps if the text changed
            c = with_schedule(c, continued_steps(c, len(dls.train_ds)))
        dls.to(torch.device(c.device))
        self.c = fit_to_hardware(c, self.networks, hf_tokenizer, self.processes)
        return self.c

    @contextmanager
    def training(self, learn):
        """Context in which `learn.fit(1)` trains to the last step or to stop_at.

        It writes the log, the milestones and the checkpoints to resume from.
        """
        c, train_ds = self.c, learn.dls.train_ds
        if self.networks and not KEYS[selected(c)].has_new_generator:
            restore_moments(learn.opt.opt, learn.model, c.initial_weights)
        warn_of_repetition(len(train_ds), c.bs, c.steps)
        lengths = example_lengths(train_ds.hf_dset)
        warn_of_untrained_positions(learn.model, lengths.max(), c.max_length)
        entropy = unigram_entropy(train_ds.hf_dset, never_masked(self.hf_tokenizer, c.masking))
        first_step = self.checkpoint["step"] if self.checkpoint else 0
        print_summary(c, self.run_folder, learn, lengths.mean(), entropy, first_step)
        must_match = self.check_same_run(learn)
        stop_at = min(c.stop_at or c.steps, c.steps)  # stop_at may be more, also than those of a second stage
        last_step = max(first_step, stop_at)
        learn.dls.train.start, learn.dls.train.n = first_step * c.bs, last_step * c.bs

        log = None
        if self.processes.is_main:
            if not self.checkpoint:
                self.run_folder.archive()  # an earlier run of this name
            facts = {"unigram_entropy": entropy}
            log = RunLog(self.run_folder.name, self.run_folder.folder, c.as_data(), facts, self.checkpoint)
            self.stack.callback(log.close)
        with StopSignals() as signals:
            training_log = TrainingLog(c.steps, c.bs * c.max_length, last_step, log)
            milestones = milestone_steps(c.steps, c.milestones, stop_at)
            if log and self.checkpoint:
                warn_of_passed_milestones(c, first_step, self.checkpoint["config"]["milestones"])
            learn.add_cbs([
                training_log,
                Milestones(milestones, self.run_folder.milestone, partial(self.save_milestone, learn), log),
                ResumeCheckpoint(
                    self.run_folder.folder, must_match, log, signals, c.save_minutes, checkpoint=self.checkpoint
                ),
            ])
            with closing(training_log):
                yield
        if self.processes.is_main:
            plots.save_pretraining_plots(learn, self.hf_tokenizer, self.run_folder.folder, c.steps)
            is_measured = c.quickstart and c.datas == ["prose"] and not objective_of(c).token_score
            if is_measured and "discriminator" in (networks := saved_networks(learn.model)):
                self.measure_quickstart(networks["discriminator"])
        if last_step < c.steps:
            print(f"Stopped after step {last_step:,} of {c.steps:,}. Rerun the command with a larger stop_at, or "
                  "without it, and without resume=False, to continue.")

    def measure_quickstart(self, discriminator):
        """Print how well a discriminator recognizes corruptions of text that no run of `prose` trains on.

        The numbers are also saved in the run's folder.
        """
        documents = load_documents("prose_held_out", "datasets").documents["text"]
        scores = measure(discriminator, self.hf_tokenizer, documents, self.c.max_length)
        write_text_atomically(self.run_folder.folder / "damaged_text.json", json.dumps(scores))
        print(report(scores))

    def save_milestone(self, learn, at, metrics=None):
        """Write the checkpoint of a milestone, at a percentage or a step, and upload it. metrics: of held-out text."""
        path = self.run_folder.milestone(at)
        save_pretrained(path, learn.model, self.c, self.hf_tokenizer, learn.train_iter, metrics)
        upload(path, self.c.upload_to)

    def check_same_run(self, learn):
        """Check that a resumed run has the text and vocabulary that it began with.

        Returns {"format", "config", "contents", "data", "definitions"}, which its checkpoints to resume from keep. The
        definitions are those with which the run began.
        Raises UserError if the data differ, or if other processes loaded another checkpoint.
        """
        checkpoint, folder = self.checkpoint, self.run_folder.folder
        if len(set(self.processes.gather(checkpoint["step"] if checkpoint else 0))) > 1:
            raise UserError(f"The processes found different checkpoints to resume from in {str(folder)!r}. Start "
                            "them in a folder that all machines share.")
        files = learn.dls.train_ds.hf_dset.cache_files  # examples_<key of the text>_<number>_of_<number>.arrow
        keys = [key for key, _ in itertools.groupby(Path(file["filename"]).stem.split("_")[1] for file in files)]
        text = content_key((keys, len(learn.dls.train_ds)))
        data = {"vocabulary": content_of(self.hf_tokenizer.backend_tokenizer), "text": text}
        contents = contents_of(self.c) if self.processes.is_main else {}  # only the main process saves
        here = {"format": FORMAT, "config": self.c.as_data(), "contents": contents, "data": data,
                "definitions": self.definitions}
        if not checkpoint:
            return here
        if changed := [name for name, value in data.items() if checkpoint["data"][name] != value]:
            raise UserError(f"The {' and the '.join(changed)} changed since the run in {str(folder)!r} was started, or "
                            f"another version of this project prepared it. Restore what was there, {OTHERWISE}")
        began_with = checkpoint.get("definitions", self.definitions)
        if checkpoint["step"] < self.c.steps and (changed := changed_definitions(began_with, self.definitions)):
            print(f"Notice: {', '.join(changed)} changed since this run began. Its steps before used the earlier "
                  f"definitions. To train all of them with the present ones, {OTHERWISE}")
        return here | {"definitions": began_with}


def warn_of_untrained_positions(model, longest, max_length):
    """Print a warning if positions have embeddings that no example trains. longest: tokens of the longest example."""
    if longest < max_length and any(map(has_learned_positions, transformers_in(model))):
        print(f"Warning: the examples have at most {longest} tokens, so the embeddings of later positions are not "
              f"trained. For max_length={max_length}, longer documents are needed.")


def milestone_steps(steps, percents, stop_at):
    """Return {step: percents} at which pretraining is evaluated and saved.

    The steps are shares of all steps, and the last one. In a short run, several percents may fall on one step.
    The step `stop_at`, if it is not the last one, has itself beside its percents, if any.
    """
    step_of = {percent: max(1, round(steps * percent / 100)) for percent in {*percents, 100.}}
    at_steps = {step: [percent for percent in sorted(step_of) if step_of[percent] == step] for step in step_of.values()}
    return at_steps | ({stop_at: [*at_steps.get(stop_at, []), stop_at]} if stop_at < steps else {})


def warn_of_passed_milestones(c, first_step, earlier):
    """Print a warning if milestones of a resumed run that it did not have before, in `earlier`, are behind it."""
    at_steps = milestone_steps(c.steps, {*c.milestones} - {*earlier}, c.steps)
    if passed := [percent for step, percents in at_steps.items() if step < first_step for percent in percents]:
        print(f"Warning: the run is resumed after step {first_step:,}, so the milestones {passed} cannot be saved any "
              "more.")


def fit_to_hardware(c, networks, hf_tokenizer, processes):
    """The configuration with precision and micro_batch chosen where they are None. A resumed run keeps its size.

    Both are the same in all processes: fp16 if one of several GPUs does not support bf16.
    networks: trained ones to continue from, or None.
    """
    device = torch.device(c.device)
    chosen = processes.gather(choose_precision(c.precision, device))
    c = c.copy_with({"precision": "fp16" if "fp16" in chosen else chosen[0]})
    size = c.micro_batch
    if size is None:
        objective = objective_of(c)
        with torch.device("meta"):
            networks = networks or objective.fresh(c, len(hf_tokenizer), hf_tokenizer.pad_token_id)
        predicted = objective.predicted(c.mask_prob)
        size = micro_batch_size(device, c.bs, c.max_length, c.precision, networks, predicted, processes.n)
    return c.copy_with({"micro_batch": processes.share(min(processes.gather(size)), c.bs)})


def print_summary(c, run_folder, learn, length, entropy, first_step):
    """Print what a run trains and with what, before its first step; of a complete run, only that it is complete.

    length: mean tokens of an example.   entropy: of the unigrams, in nats.
    """
    if first_step == c.steps:
        print(f"The run {run_folder.name} is complete. Set resume=False to train it again.")
        return
    n, n_held_out = len(learn.dls.train_ds), sum(len(loader.dataset) for loader in learn.dls.loaders[1:])
    name = f"Resuming the run {run_folder.name} after step {first_step:,}" if first_step else run_folder.name
    usual = {"objective": ELECTRA, "masking": "bernoulli", "initial_weights": "huggingface"}
    keys = dict.fromkeys([*usual, KEYS[selected(c)].selected_by[0]])
    differing = "".join(f", {key}={c[key]}" for key in keys if c[key] != usual.get(key))
    warmup = "" if "warmup_steps" in UNUSED_KEYS.get(c.schedule, ()) else f" ({c.warmup_steps:,} warmup)"
    print(f"{name}: {c.size}{differing}, {count_parameters(learn.model):,} parameters; {c.steps:,} steps{warmup} "
          f"of {c.bs} x {c.max_length} tokens, learning rate {c.lr:.2g}; {c.device}, "
          f"{c.precision}, micro-batches of {c.micro_batch}")
    epochs = counted(c.steps * c.bs / n, "epoch")
    print(f"{', '.join(c.datas)}: {n:,} training examples of {length:.0f} tokens ({epochs}), "
          f"{n_held_out:,} held out, unigram entropy {entropy:.2f} nats per token; {text_of_long_lines(c)}")
    if not first_step and (setting := faster_setting(c, learn.model)):  # a resumed run keeps its precision
        print(f"A faster setting for this kind of device: {setting}")


def text_of_long_lines(c):
    """What becomes of lines that do not fit into an example, as text."""
    kept = [source for source in c.datas if long_lines_of(source, c.long_lines) == "keep"]
    if not kept:
        return "long lines are truncated"
    return "long lines are kept" if kept == c.datas else f"long lines are kept in {', '.join(kept)}, else truncated"
