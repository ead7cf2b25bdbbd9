"""The runs of a group: which of them to train, and what is written about them."""
import contextlib
import gc
import itertools
import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from _utils.errors import UserError
from _utils.files import check_writable, content_key, write_text_atomically
from _utils.finetuning.config import names_of, uses_synthetic_glue
from _utils.finetuning.model import save_finetuned
from _utils.finetuning.preparation import (
    RunProcesses,
    advice_about_length,
    case_warnings,
    check_first_token,
    check_settings,
    chosen_runs,
    for_checkpoint,
    length_warnings,
    print_tables,
    report_run,
    seeds_of,
    settings_of,
    unused_keys,
)
from _utils.finetuning.results import report, save_result_plots, summarize, table_of_runs
from _utils.finetuning.runs import GLUE_FOLDER, SCORES, FinishedRun, Runs, add_run, run_path, with_baseline
from _utils.networks import load_pretrained
from _utils.objectives.keys import selected
from _utils.runs import RunLog, locked
from _utils.runs.definitions import definitions_of
from _utils.tasks.glue import load_task
from _utils.tasks.rows import EncodedTask, encode_task, text_messages
from _utils.tasks.settings import Settings
from _utils.tasks.submission import OFFICIAL_ROWS, SUBMISSION, make_zip, rows_of
from _utils.tasks.synthetic import write_synthetic_glue
from _utils.tasks.tables import table_key
from _utils.tasks.task import Task
from _utils.tasks.task_names import SOURCES
from _utils.tasks.wsc import WSC, load_wsc_task
from _utils.training import choose_device


def load_tables(c):
    """{task: TaskData} of the configured tasks."""
    if uses_synthetic_glue(c):
        write_synthetic_glue(c.glue_dir)
    tables = {}
    for name, entry in zip(names_of(c.tasks), c.tasks):
        if isinstance(entry, dict):
            [source] = SOURCES
            tables[name] = source.load(entry)
        elif name == WSC.name and c.wsc_trick and c.do_finetune:
            tables[name] = load_wsc_task(c.glue_dir)
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

    run: the function of the notebook, whose definitions are part of the records.
    hyperparameters: function (task, configuration, number of training rows) -> {name: value}.   encode: that of
    Finetune_GLUE.ipynb.
    Loads the checkpoint and all tables, prints what will be trained, and raises UserError for problems that would stop
    the runs later.
    """

    def __init__(self, c, run, hyperparameters, encode):
        self.processes = RunProcesses(c.device)
        self.device = choose_device(c.device)  # the current GPU, if the configuration names no device
        self.code = content_key(definitions_of(run))
        self.c = c.copy_with({"device": str(self.device)})
        self.settings, self.data, self.encode = {}, {}, encode
        check_writable(GLUE_FOLDER, Path("test_outputs", c.group_name), files=[SCORES])
        if c.do_finetune:
            self.load_checkpoint()
        else:
            chosen_runs(c, Runs())  # fails before the tables are loaded
        with self.processes.main_first():
            self.tables = load_tables(self.c)
        if c.do_finetune:
            self.choose_settings(hyperparameters)
        print_tables(self.tables, self.settings, are_official=not uses_synthetic_glue(c))

    def load_checkpoint(self):
        """Load the pretrained model, and complete the configuration with its size."""
        c = self.c
        self.pretrained = load_pretrained(c.pretrained_checkpoint, c.size)
        self.c = for_checkpoint(c, self.pretrained)
        if c.wsc_trick and WSC.name in c.tasks:
            self.pretrained.discriminator()  # UserError for another network
        runs = f"runs {c.start} to {c.end - 1}" if c.end - c.start > 1 else f"run {c.start}"
        print(f"{c.group_name}: {runs} of {', '.join(names_of(c.tasks))}, from {self.pretrained.name} "
              f"(size={self.c.size})", *length_warnings(self.c, self.pretrained), *case_warnings(self.pretrained),
              sep="\n")

    def choose_settings(self, hyperparameters):
        """Determine {task: settings}, MNLI first if others start from it.

        UserError for a task without its training or dev table; notices about keys that do not apply, and about models
        that cannot be exported.
        """
        names, family = names_of(self.c.tasks), self.pretrained.model.config.model_type
        if self.c.start_from_mnli:
            names.sort(key=lambda name: name != "mnli")
        for name in names:
            task, splits, missing, notices, *_ = self.tables[name]
            for split in ("train", *task.devs):
                if split in missing:
                    raise UserError(f"The task {name} cannot be finetuned: {missing[split]}. Set glue_dir=PATH to a "
                                    "complete GLUE download, or leave the task out of tasks.")
            values = hyperparameters(task, self.c, len(splits["train"]))
            self.settings[name] = settings_of(task, splits, values, self.c, self.pretrained)
            check_first_token(task, self.settings[name], self.pretrained)
            notices += unused_keys(task, self.c)
            head = task.head.why_not_exported(self.settings[name], family)
            if head and task.as_data():  # GLUE's models are for the server
                notices.append(f"export_hf cannot write {head}")
        check_settings(self.c, self.settings, self.pretrained)

    def unfinished_runs(self):
        """Yield each unfinished run of this process as a PlannedRun, while its folder is locked; report the others.

        All processes wait for the MNLI runs if other tasks start from them.
        """
        mine = list(self.processes.own(itertools.product(self.settings, seeds_of(self.c))))
        for name in self.settings:
            for run in [run for task, run in mine if task == name]:
                yield from self.unless_finished(name, run)
                gc.collect()  # learners contain reference cycles, which would keep their GPU memory allocated
            if name == "mnli" and self.c.start_from_mnli:
                self.processes.wait()
        self.processes.wait()

    def unless_finished(self, name, run):
        """Yield the PlannedRun of a run, or report that it is finished."""
        c, settings, seed = self.c, self.settings[name], seeds_of(self.c)[run]
        folder = run_path(c.group_name, name, run).with_suffix("")
        with locked(folder, "group_name"):  # another command may train this run
            if record := Runs().finished(c.group_name, name, run, seed, settings):
                changed = ", with code that changed since" if record.code != self.code else ""
                report_run(record, f"already finished{changed}", self.processes)
                return
            data, started = self.encoded(name), time.perf_counter()
            group = settings.start_from_mnli
            mnli_run = Runs().mnli_run_of(c.group_name, name, group, self.pretrained) if group else None
            shutil.rmtree(folder, ignore_errors=True)  # of an interrupted run
            log = RunLog(folder.name, folder, {**c, **asdict(settings), "seed": seed})
            with contextlib.closing(log):
                task = self.tables[name].task.in_recipe(settings.recipe)
                yield PlannedRun(task, run, seed, settings, data, log, started, mnli_run)

    def encoded(self, name):
        """EncodedTask of a task. Only that of the last task is kept; notices about its texts are printed once."""
        if name not in self.data:
            task, settings, hf_tokenizer = self.tables[name].task, self.settings[name], self.pretrained.hf_tokenizer
            splits = self.tables[name].splits
            self.data = {name: encode_task(task, splits, settings, hf_tokenizer, self.encode)}
            texts = task.inputs.texts_in(splits["train"])
            advice = advice_about_length(settings, self.pretrained.length, task.head.keys)
            for notice in text_messages(self.data[name].train, settings.max_length, hf_tokenizer, texts, advice):
                self.processes.report(f"{task.title}: {notice}")
        return self.data[name]

    def save(self, planned, learn, evaluations):
        """Save the checkpoint of a trained PlannedRun, append its record to scores.jsonl, and report it.

        learn: FinetuningLearner.   evaluations: {split: `Metrics.evaluate`}.
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
            objective=selected(self.pretrained.run) if self.pretrained.run else None,
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


def score_test_files(c, tables, load):
    """Add scores on the labelled test files of custom tasks to all finished runs, also to those that this command does
    not train.

    A test file may get labels, or change, after a run: then the scores are computed again, or removed.
    """
    for name, data in tables.items():
        current = table_key(data.splits["test"]) if data.test_task else None
        for record in Runs().of(c.group_name, name):
            path, evaluations = record.path, {}
            key = current if path.exists() else None  # without its checkpoint, a run cannot be scored again
            if record.test_table in (current, key) or record.settings.own_task != data.task.as_data():
                continue
            if key:
                outputs = load(path, c.device, c.precision).outputs(data.splits["test"])
                scores = data.test_task.of_runs([record]).scores
                evaluation = scores.evaluate(outputs, data.splits["test"]["label"][:])
                evaluations = with_baseline({"test": evaluation}, data, record.settings)
            add_run(record.with_evaluations(evaluations, test_table=key))


def write_test_files(c, tables, load, predict_test):
    """Write the predictions for each test set to test_outputs/<group_name>/, and which runs made each file of the
    folder to <group_name>.json.

    load, predict_test: those of Finetune_GLUE.ipynb.
    Returns the path of <group_name>.zip, written if all eleven files of GLUE exist, or None.
    """
    folder, made_by, skipped = Path("test_outputs") / c.group_name, {}, []
    for name, runs in chosen_runs(c, Runs()).items():
        data, task = tables[name], tables[name].task.of_runs(runs)
        models = [load(record.path, c.device, c.precision) for record in runs]
        dev_scores = ", ".join(f"{name} run {record.run} (dev {record.score:.2f})" for record in runs)
        for dl_idx, (split, file) in enumerate(task.test_files.items()):
            if not models or split in data.missing:
                skipped.append(f"{file} ({data.missing.get(split, f'{task.title} has no finished run')})")
                continue
            predictions = predict_test(task, models, dl_idx, data=data)
            task.prediction_files.write(folder / file, data.splits[split], predictions)
            made_by[file] = dev_scores
    if skipped:
        print(f"Without predictions: {', '.join(skipped)}")
    if not made_by:
        return None
    print(f"Predictions in {folder}/: {', '.join(made_by)} ({folder}.json names the runs)")
    record = Path(f"{folder}.json")
    earlier = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    made_by = {file: text for file, text in (earlier | made_by).items() if (folder / file).exists()}
    write_text_atomically(record, json.dumps(made_by, indent=1) + "\n")
    return make_submission(c, folder) if SUBMISSION.keys() & made_by.keys() else None


def make_submission(c, folder):
    """The path of the zip for the GLUE server; None if the files of the folder are not a submission, which is printed.
    """
    n_rows, of = OFFICIAL_ROWS, ""
    if uses_synthetic_glue(c):
        n_rows, of = rows_of(c.glue_dir), " (for synthetic tables)"
    try:
        path = make_zip(folder, n_rows, c.majority_for_missing)
    except UserError as error:  # the scores are still worth reporting
        print(f"No zip for the GLUE server: {error}")
        return None
    print(f"{path} is complete and valid{of}")
    return path
