"""The runs of a group: which of them to train, and what is written about them."""
import contextlib
import gc
import itertools
import json
import os
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from _utils.errors import UserError, is_first_process
from _utils.files import check_writable, content_key, write_text_atomically
from _utils.finetuning.config import names_of, uses_synthetic_glue
from _utils.finetuning.model import save_finetuned
from _utils.finetuning.plan import chosen_runs, configured, for_checkpoint, load_tables, plan_runs, seeds_of
from _utils.finetuning.results import line_about, print_tables, report, save_result_plots, summarize, table_of_runs
from _utils.finetuning.runs import (
    GLUE_FOLDER,
    SCORES,
    FinishedRun,
    Runs,
    add_run,
    check_same_task,
    run_path,
    with_baseline,
)
from _utils.networks import load_pretrained
from _utils.objectives.objective_keys import selected
from _utils.runs import RunLog, locked
from _utils.runs.definitions import definitions_of
from _utils.tasks.rows import EncodedTask, encode_task, text_messages
from _utils.tasks.settings import Settings
from _utils.tasks.submission import OFFICIAL_ROWS, SUBMISSION, make_zip, rows_of
from _utils.tasks.tables import table_key
from _utils.tasks.task import Task
from _utils.text.normalization import case_warnings
from _utils.training import RunProcesses, choose_device, set_seed


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

    run, hyperparameters, sentence_predictor: those of Finetune_GLUE.ipynb. The definitions that `run` uses are part of
    the records.
    Loads the checkpoint and all tables, prints what will be trained, and raises UserError for problems that would stop
    the runs later.
    """

    def __init__(self, c, run, hyperparameters, sentence_predictor):
        self.processes = RunProcesses(c.device)
        self.device = choose_device(c.device)  # the current GPU, if the configuration names no device
        self.code = content_key(definitions_of(run))
        self.c = c.copy_with({"device": str(self.device)})
        self.settings, self.data, self.sentence_predictor = {}, {}, sentence_predictor
        check_writable(GLUE_FOLDER, Path("test_outputs", c.group_name), files=[SCORES])
        if c.do_finetune:
            self.load_checkpoint()
            self.report_other_code()
        else:
            chosen_runs(c, Runs())  # fails before the tables are loaded
        with self.processes.main_first():
            self.tables = load_tables(self.c)
        if c.do_finetune:
            self.settings = plan_runs(self.c, self.tables, self.pretrained, hyperparameters)
        else:
            self.check_predicting_runs()
        print_tables(self.tables, self.settings, are_official=not uses_synthetic_glue(c))

    def load_checkpoint(self):
        """Load the pretrained model, and complete the configuration with its size."""
        c = self.c
        self.pretrained = load_pretrained(c.pretrained_checkpoint, c.size)
        self.c = for_checkpoint(c, self.pretrained)
        if c.wsc_trick:
            self.pretrained.discriminator()  # UserError for another network
        runs = f"runs {c.start} to {c.end - 1}" if c.end - c.start > 1 else f"run {c.start}"
        print(f"{c.group_name}: {runs} of {', '.join(names_of(c.tasks))}, from {self.pretrained.name} "
              f"(size={self.c.size})", *self.pretrained.length_warnings(self.c.max_length),
              *case_warnings(self.pretrained.hf_tokenizer, self.pretrained.name), sep="\n")

    def check_predicting_runs(self):
        """UserError for a run that cannot predict the test sets of its task, before anything is written."""
        for name, runs in chosen_runs(self.c, Runs()).items():
            task = self.tables[name].task
            for record in runs if task.test_files else ():
                check_same_task(record, task, record.path)

    def report_other_code(self):
        """Print a notice if finished runs were trained with other definitions, also where the rest is a log."""
        group = self.c.group_name
        if is_first_process() and any(record.code != self.code for record in Runs().of(group)):
            print(f"Notice: finished runs of the group {group!r} were trained with code that has changed since. To "
                  "train them again, set another group_name.", file=sys.stderr)

    def mine(self):
        """Yield (task, run) of the runs of this process.

        If other tasks start from MNLI, all processes wait for its runs.
        """
        mine = list(self.processes.own(itertools.product(self.settings, seeds_of(self.c))))
        for name in self.settings:
            yield from (planned for planned in mine if planned[0] == name)
            if name == "mnli" and self.c.start_from_mnli:
                self.processes.wait()
        self.processes.wait()

    @contextlib.contextmanager
    def opened(self, name, run):
        """Context that locks the folder of a run: its PlannedRun, or None for a finished run, which is reported."""
        c, settings, seed = self.c, self.settings[name], seeds_of(self.c)[run]
        folder = run_path(c.group_name, name, run).with_suffix("")
        with locked(folder, "group_name"):  # another command may train this run
            if record := Runs().finished(c.group_name, name, run, seed, settings):
                self.processes.report(line_about(record, "already finished"))
                yield None
                return
            data, started = self.encoded(name), time.perf_counter()
            group = settings.start_from_mnli
            mnli_run = Runs().mnli_run_of(c.group_name, name, group, self.pretrained) if group else None
            shutil.rmtree(folder, ignore_errors=True)  # of an interrupted run
            log = RunLog(folder.name, folder, {**c, **asdict(settings), "seed": seed})
            with contextlib.closing(log):
                task = self.tables[name].task.in_recipe(settings.recipe)
                yield PlannedRun(task, run, seed, settings, data, log, started, mnli_run)
        gc.collect()  # learners contain reference cycles, which would keep their GPU memory allocated

    def encoded(self, name):
        """EncodedTask of a task. Only that of the last task is kept; warnings about its texts are printed once."""
        if name not in self.data:
            task, settings, hf_tokenizer = self.tables[name].task, self.settings[name], self.pretrained.hf_tokenizer
            splits = self.tables[name].splits
            set_seed(0)  # all runs share these rows, for which an edited `encode` may draw random numbers
            self.data = {name: encode_task(task, splits, settings, hf_tokenizer, self.sentence_predictor)}
            texts = task.inputs.texts_in(splits["train"])
            advice = advice_about_length(settings, self.pretrained.length, task.head.keys)
            for warning in text_messages(self.data[name].train, settings.max_length, hf_tokenizer, texts, advice):
                self.processes.report(f"{task.title}: {warning}")
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
        name = self.pretrained.name
        record = FinishedRun(
            group=c.group_name,
            task=task.name,
            run=planned.run,
            seed=planned.seed,
            settings=settings,
            # elsewhere, a relative folder without ./ might look like a hub id
            pretrained_checkpoint=os.path.join(os.curdir, name) if os.path.isdir(name) else name,
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
        self.processes.report(line_about(record, f"{seconds:.0f} s{epoch}"))

    def finish(self, load, predict_test):
        """Predict the test sets, print the tables of the group, write its plots, and return Results.

        load, predict_test: those of Finetune_GLUE.ipynb.
        """
        submission = None
        if self.processes.is_main:
            score_test_files(self.c, self.tables, load)
            runs = Runs().of(self.c.group_name)
            print(report(runs))
            submission = write_test_files(self.c, self.tables, load, predict_test)
            save_result_plots(runs)
        self.processes.wait()  # until all is written
        runs = Runs().of(self.c.group_name)
        self.processes.close()
        return Results(summarize(runs), table_of_runs(runs), self.tables, submission)


def advice_about_length(settings, longest, keys):
    """What to do about texts that are too long.

    settings: of a run.   longest: tokens that the model allows.   keys: settings of the head.
    """
    longest = min(longest, 512)  # the key accepts no more
    ways = [f"max_length (at most {longest})"] if settings.max_length < longest else []
    ways += ["window_stride"] if "window_stride" in keys else []
    return f"Set {' or '.join(ways)}, or shorten the texts." if ways else "Shorten the texts."


def score_test_files(c, tables, load):
    """Add scores on the labelled test files of custom tasks to all finished runs, also to those that this command does
    not train.

    A test file may get labels, or change, after a run: then the scores are computed again, or removed if the checkpoint
    is missing. A file without labels leaves them as they are.
    """
    for name, data in tables.items():
        if not data.test_task:
            report_earlier_scores(data, Runs().of(c.group_name, name))
            continue
        current = table_key(data.splits["test"])
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


def report_earlier_scores(data, runs):
    """Print a notice if the test scores of runs are of another file than that of a TaskData, which has no labels."""
    earlier = {record.test_table.rpartition(", ")[0] for record in runs if record.test_table}
    if earlier and "test" in data.splits:
        print(f"Notice: the test file of {data.task.title} has no labels. The test scores below are of an earlier one "
              f"with {', '.join(sorted(earlier))}.")


def write_test_files(c, tables, load, predict_test):
    """Write the predictions for each test set to test_outputs/<group_name>/, and which runs made each file of the
    folder to <group_name>.json.

    load, predict_test: those of Finetune_GLUE.ipynb.
    Returns the path of <group_name>.zip, written if it is a valid submission, or None.
    """
    folder, made_by, skipped = Path("test_outputs") / c.group_name, {}, []
    sources = {task["name"]: f", {task['test']}" for task in c.tasks if isinstance(task, dict) and task["test"]}
    for name, runs in chosen_runs(c, Runs()).items():
        data, task = tables[name], tables[name].task.of_runs(runs)
        report_unused(c, task, runs)
        if not (task.test_files or c.do_finetune):
            skipped.append(f"{name} (no test file)")
        models = [load(record.path, c.device, c.precision) for record in runs if task.test_files]
        dev_scores = ", ".join(f"{name} run {record.run} (dev {record.score:.2f})" for record in runs)
        for dl_idx, (split, file) in enumerate(task.test_files.items()):
            if not models or split in data.missing:
                why = data.missing.get(split, f"{task.title} has no finished run with a checkpoint")
                skipped.append(f"{file} ({why})")
                continue
            predictions = predict_test(task, models, dl_idx, data=data)
            task.prediction_files.write(folder / file, data.splits[split], predictions)
            made_by[file] = dev_scores + sources.get(name, "")
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


def report_unused(c, task, runs):
    """Print the keys that the user set to other values than those with which finished runs of a Task were trained."""
    chosen = {key: value for key, value in configured(task, c).items() if key in c.chosen}
    chosen |= c.task_overrides.get(task.name, {})
    for record in runs if not c.do_finetune else ():
        trained_with = asdict(record.settings)
        if unused := [f"{key}={value!r} (trained with {trained_with[key]!r})" for key, value in chosen.items()
                      if value != trained_with[key]]:
            print(f"Notice: no effect on run {record.run} of {record.task}: {', '.join(unused)}")


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
