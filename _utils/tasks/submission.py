"""Checks and zips the files of a submission to the GLUE server. Command: `python -m _utils glue_submission`."""
import zipfile
from pathlib import Path

from _utils.errors import UserError, as_user_error
from _utils.files import write_atomically
from _utils.names import check_file
from _utils.tasks.glue import TASKS, load_task
from _utils.tasks.tables import text_of_predictions
from _utils.tasks.task_names import GLUE_TEST_FILES

SUBMISSION = {file: (TASKS[name], split) for name, files in GLUE_TEST_FILES.items() for split, file in files.items()}
OFFICIAL_ROWS = {file: task.official_rows[split] for file, (task, split) in SUBMISSION.items()}


def check_tsv(name, content, rows):
    """Check the bytes of one file, which must have this many rows. Raises UserError with file and line."""
    task, _ = SUBMISSION[name]
    header, *lines = content.decode(errors="replace").removesuffix("\n").split("\n")
    if header != "index\tprediction":
        raise UserError(f"{name}, line 1: the header must be exactly 'index<TAB>prediction', not {header[:60]!r}.")
    for number, line in enumerate(lines):
        index, _, prediction = line.partition("\t")
        if index != str(number):
            raise UserError(f"{name}, line {number + 2}: the index must be {number}, not {index[:20]!r}. Keep the "
                            "test set's order.")
        if not task.prediction_files.accepts(prediction):
            raise UserError(f"{name}, line {number + 2}: invalid prediction {prediction[:40]!r}. Use "
                            f"{task.inputs.label_column.accepted}.")
    if len(lines) != rows:
        raise UserError(f"{name} has {len(lines) + 1:,} lines instead of {rows + 1:,} (a header and {rows:,} "
                        f"predictions). The official number is {OFFICIAL_ROWS[name]:,}; `python -m _utils "
                        "glue_submission FILE GLUE_DIR` counts the rows of other tables.")


def read_submission(path):
    """{file: bytes} of a zip, in which unknown files are not read, or of a folder, in which they are ignored."""
    path = Path(path)
    if path.is_dir():
        return {name: (path / name).read_bytes() for name in SUBMISSION if (path / name).is_file()}
    check_file(path, "Pass a zip or a folder in test_outputs/.")
    message = f"{path} is not a readable zip ({{error}}). Create it again."
    with as_user_error(message), zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) if name in SUBMISSION else b"" for name in archive.namelist()}


def check_submission(path, content, rows):
    """Check that the zip or folder `path` holds the eleven files, each valid. Raises UserError with the first problem.

    content: from `read_submission`.   rows: {file: expected rows}.
    """
    if unknown := sorted(content.keys() - SUBMISSION.keys()):
        raise UserError(f"{path} holds {unknown[0]!r}, which is not one of {', '.join(sorted(SUBMISSION))}. Remove it "
                        "(the zip must be flat, without folders).")
    if missing := sorted(SUBMISSION.keys() - content.keys()):
        raise UserError(f"{path} lacks {', '.join(missing)}. The GLUE server expects all eleven files. Finetune these "
                        "tasks in this group, with their test files, or run finetune.py with "
                        "majority_for_missing=True.")
    for name in sorted(content):
        check_tsv(name, content[name], rows[name])


def make_zip(folder, rows, majority_for_missing=False):
    """Zip the files of a submission to <folder>.zip and return its path.

    majority_for_missing: fill in missing files, only in the zip, with the majority label in all rows.
    Raises UserError as `check_submission` does if the files are not a valid submission. An earlier zip, which would
    look like theirs, is then removed.
    """
    target, content = Path(f"{folder}.zip"), read_submission(folder)
    missing = sorted(SUBMISSION.keys() - content.keys())
    if majority_for_missing and missing:
        content |= {name: majority_baseline(name, rows[name]) for name in missing}
        print(f"With the majority label in every row: {', '.join(missing)}")
    try:
        check_submission(folder, content, rows)
    except UserError as error:
        if not target.exists():
            raise
        target.unlink()
        raise UserError(f"{error} {target}, of earlier files, was removed.") from None

    def write(file):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(content):
                archive.writestr(name, content[name])
    write_atomically(target, write)
    return target


def majority_baseline(name, n):
    """The bytes of a file of n rows with the majority label of the training set (STS-B: the mean score)."""
    task, _ = SUBMISSION[name]
    return text_of_predictions(task.prediction_files.written([task.majority]) * n).encode()


def rows_of(glue_dir):
    """{file: rows} of the test sets in a GLUE folder; the official number for test sets that are missing."""
    splits = {file: load_task(task, glue_dir, [split]).splits for file, (task, split) in SUBMISSION.items()}
    return OFFICIAL_ROWS | {file: len(rows) for file, of_file in splits.items() for rows in of_file.values()}
