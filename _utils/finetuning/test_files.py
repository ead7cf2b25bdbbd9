"""Test files: scores on labelled ones, predictions for all, and the zip for the GLUE server."""
from pathlib import Path

from _utils.finetuning.config import uses_synthetic_glue
from _utils.finetuning.preparation import chosen_runs
from _utils.finetuning.runs import Runs, add_run, with_baseline
from _utils.tasks.submission import OFFICIAL_ROWS, complete_submission, rows_of
from _utils.tasks.tables import table_key


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
    """Write the predictions for each test set to test_outputs/<group_name>/, and what made each to <group_name>.json.

    load, predict_test: those of Finetune_GLUE.ipynb.
    Returns the path of <group_name>.zip, written if all eleven files of GLUE exist, or None. Majority baselines of an
    earlier command are deleted or rewritten.
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
            task.files.write(folder / file, data.splits[split], predictions)
            made_by[file] = dev_scores
    if made_by:
        print(f"Predictions in {folder}/: {', '.join(made_by)} ({folder}.json names the runs)")
    if skipped:
        print(f"Without predictions: {', '.join(skipped)}")
    n_rows = rows_of(c.glue_dir) if uses_synthetic_glue(c) else OFFICIAL_ROWS
    return complete_submission(folder, made_by, c.majority_for_missing, n_rows)
