"""The runs of a group: which of them to train, and what is written about them."""
import contextlib
import gc
import itertools
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from _utils.files import check_writable, code_key
from _utils.finetuning.config import names_of, uses_synthetic_glue
from _utils.finetuning.lengths import advice_about_length, length_warnings
from _utils.finetuning.model import save_finetuned
from _utils.finetuning.preparation import (
    RunProcesses,
    check_settings,
    chosen_runs,
    for_checkpoint,
    print_tables,
    report_run,
    seed_of,
    settings_of,
    trainable_tasks,
)
from _utils.finetuning.results import report, save_result_plots, summarize, table_of_runs
from _utils.finetuning.runs import GLUE_FOLDER, FinishedRun, Runs, add_run, run_path, with_baseline
from _utils.finetuning.test_files import score_test_files, write_test_files
from _utils.networks import load_pretrained
from _utils.objectives.keys import selected
from _utils.runs import RunLog, locked
from _utils.tasks.glue import load_task
from _utils.tasks.rows import EncodedTask, encode_task, special_token_notice, text_notices
from _utils.tasks.settings import Settings
from _utils.tasks.sources import source_of
from _utils.tasks.synthetic import write_synthetic_glue
from _utils.tasks.task import Task
from _utils.tasks.wsc import WSC, load_wsc_task
from _utils.training import choose_device


def load_tables(c):
    """{task: TaskData} of the configured tasks."""
    if uses_synthetic_glue(c):
        write_synthetic_glue(c.glue_dir)
    tables = {}
    for name, entry in zip(names_of(c.tasks), c.tasks):
        if source := source_of(entry):
            tables[name] = source.load(entry)
        elif name == WSC.name and c.wsc_trick and c.do_finetune:
            tables[name] = load_wsc_task(c.glue_dir, c.wsc_dir)
        else:
            tables[name] = load_task(name, c.glue_dir)
    return tables


class PlannedRun(NamedTuple):
    """A run to train.

    run: its number.   settings: from `settings_of`.   data: of the task.   log: for the losses.
    started: time.perf_counter().
    mnli_run: FinishedRun of MNLI with whose encoder it starts, or None.
    """
    task: Task
    run: int
    seed: int
    settings: Settings
    data: EncodedTask
    log: RunLog
    started: float
    mnli_run: FinishedRun | None

    @property
    def title(self):
        """Name of the run in messages."""
        return f"{self.task.title}, run {self.run}"


class Results(NamedTuple):
    """What `finetune.run` returns.

    scores, runs: of the group's tasks and of its finished runs.   tables: {task: TaskData}.
    submission: path of the zip, or None.
    """
    scores: pd.DataFrame
    runs: pd.DataFrame
    tables: dict
    submission: Path | None


class Group:
    """The runs of a completed configuration, which all processes with the same command share.

    hyperparameters: function (task, configuration, number of training rows) -> {name: value}.   encode: that of
    Finetune_GLUE.ipynb.
    Loads the checkpoint and all tables, prints what will be trained, and raises UserError for problems that would stop
    the runs later.
    """

    def __init__(self, c, hyperparameters, encode):
        self.processes = RunProcesses(c.device)
        self.device = self.processes.device(choose_device(c.device))
        self.code = code_key(hyperparameters.__globals__.get("__file__", "Finetune_GLUE.ipynb"))
        self.c = c.copy_with({"device": str(self.device)})
        self.settings, self.data, self.family, self.encode = {}, {}, None, encode
        check_writable(GLUE_FOLDER, Path("test_outputs", c.group_name))
        if c.do_finetune:
            self.load_checkpoint()
        else:
            chosen_runs(c, Runs())  # fails before the tables are loaded
        with self.processes.main_first():
            self.tables = load_tables(self.c)
        if c.do_finetune:
            self.choose_settings(hyperparameters)
        print_tables(self.tables, self.settings, not uses_synthetic_glue(c), self.family)

    def load_checkpoint(self):
        """Load the pretrained model, and complete the configuration with its size."""
        c = self.c
        self.pretrained = load_pretrained(c.pretrained_checkpoint, c.size)
        self.family = self.pretrained.model.config.model_type
        self.c = for_checkpoint(c, self.pretrained)
        if c.wsc_trick and WSC.name in c.tasks:
            self.pretrained.discriminator()  # UserError for another network
        runs = f"runs {c.start} to {c.end - 1}" if c.end - c.start > 1 else f"run {c.start}"
        print(f"{c.group_name}: {runs} of {', '.join(names_of(c.tasks))}, from {self.pretrained.name} "
              f"(size={self.c.size})", *length_warnings(self.c, self.pretrained), sep="\n")

    def choose_settings(self, hyperparameters):
        """Determine {task: settings} of the tasks that have their tables, MNLI first if others start from it."""
        for name in trainable_tasks(self.c, self.tables):
            task, splits = self.tables[name].task, self.tables[name].splits
            values = hyperparameters(task, self.c, len(splits["train"]))
            self.settings[name] = settings_of(task, splits, values, self.c, self.pretrained)
        check_settings(self.c, self.settings, self.pretrained)

    def unfinished_runs(self):
        """Yield each unfinished run of this process as a PlannedRun, while its folder is locked; report the others.

        All processes wait for the MNLI runs if other tasks start from them.
        """
        mine = list(self.processes.own(itertools.product(self.settings, range(self.c.start, self.c.end))))
        for name in self.settings:
            for run in [run for task, run in mine if task == name]:
                yield from self.unless_finished(name, run)
                gc.collect()  # learners contain reference cycles, which would keep their GPU memory allocated
            if name == "mnli" and self.c.start_from_mnli:
                self.processes.wait()
        self.processes.wait()

    def unless_finished(self, name, run):
        """Yield the PlannedRun of a run, or report that it is finished."""
        c, settings, seed = self.c, self.settings[name], seed_of(self.c, run)
        folder = run_path(c.group_name, name, run).with_suffix("")
        with locked(folder, "group_name"):  # another command may train this run
            if record := Runs().finished(c.group_name, name, run, seed, settings):
                changed = ", with code that changed since" if record.code != self.code else ""
                report_run(record, f"already finished{changed}", self.processes)
                return
            data, started = self.encoded(name), time.perf_counter()
            group = settings.start_from_mnli
            mnli_run = Runs().best_mnli(group, self.pretrained) if group else None
            shutil.rmtree(folder, ignore_errors=True)  # of an interrupted run
            log = RunLog(folder.name, folder, {**c, **asdict(settings), "seed": seed})
            with contextlib.closing(log):
                yield PlannedRun(self.tables[name].task, run, seed, settings, data, log, started, mnli_run)

    def encoded(self, name):
        """EncodedTask of a task. Only that of the last task is kept; notices about its texts are printed once."""
        if name not in self.data:
            task, settings, hf_tokenizer = self.tables[name].task, self.settings[name], self.pretrained.hf_tokenizer
            splits = self.tables[name].splits
            self.data = {name: encode_task(task, splits, settings, hf_tokenizer, self.encode)}
            texts = task.reading.texts(splits["train"])
            notices = text_notices(
                self.data[name].train, settings.max_length, hf_tokenizer, texts[:1000],
                if_long=advice_about_length(settings, self.pretrained.length, "window_stride" in task.head.keys),
                if_unknown="Choose a model for their language.")
            special = special_token_notice(texts, hf_tokenizer)
            for notice in [*notices, *filter(None, [special])]:
                self.processes.report(f"{task.title}: {notice}")
        return self.data[name]

    def save(self, planned, learn, evaluations):
        """Save the checkpoint of a trained PlannedRun, append its record to scores.jsonl, and report it.

        learn: FinetuningLearner.   evaluations: {split: `Scores.evaluate`}.
        """
        task, settings, c = planned.task, planned.settings, self.c
        for split, evaluation in evaluations.items():
            planned.log.log(split, learn.loss_progress.steps, evaluation["scores"])
        seconds = time.perf_counter() - planned.started
        best_epoch = learn.keep_best.best_epoch if settings.keep == "best" else None
        record = FinishedRun(
            group=c.group_name,
            task=task.name,
            run=planned.run,
            seed=planned.seed,
            settings=settings,
            pretrained_checkpoint=self.pretrained.name,
            objective=selected(self.pretrained.run).name if self.pretrained.run else None,
            synthetic=uses_synthetic_glue(c) and not task.as_data(),
            mnli_run=planned.mnli_run and planned.mnli_run.run,
            train_rows=planned.data.train.n_examples,
            best_epoch=best_epoch,
            seconds=round(seconds, 1),
            device=str(self.device),
            code=self.code,
        ).with_evaluations(with_baseline(evaluations, self.tables[task.name], settings))
        save_finetuned(record.path, learn.model.cpu(), self.pretrained.hf_tokenizer, record)
        add_run(record)
        epoch = f", weights of epoch {best_epoch}" if best_epoch else ""
        report_run(record, f"{seconds:.0f} s{epoch}", self.processes)

    def finish(self, load, predict_test):
        """Predict the test sets, print the tables of the group, write its plots, and return Results.

        load, predict_test: those of Finetune_GLUE.ipynb.
        """
        submission = None
        if self.processes.is_main:
            score_test_files(self.c, self.tables, load)
            print(report(Runs().of(self.c.group_name)))
            submission = write_test_files(self.c, self.tables, load, predict_test)
            save_result_plots(Runs().of(self.c.group_name))
        self.processes.wait()  # until all is written
        runs = Runs().of(self.c.group_name)
        self.processes.close()
        return Results(summarize(runs), table_of_runs(runs), self.tables, submission)
