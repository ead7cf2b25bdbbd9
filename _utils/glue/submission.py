"""The files of a submission to the GLUE server: writing, checking, zipping.

`python -m _utils.glue.submission ZIP_OR_FOLDER [GLUE_DIR]` checks a zip, or checks a folder and zips it; against the official numbers
of rows, or those of the test sets in a GLUE folder.
"""
import json
import math
import zipfile
from pathlib import Path

from _utils.errors import PlainError
from _utils.glue.tables import load_task
from _utils.glue.tasks import TASKS
from _utils.run_files.checkpoints import write_atomically

SUBMISSION = {test.tsv: (task, test) for task in TASKS.values() for test in task.tests}  # name of a file -> whose it is
OFFICIAL_ROWS = {name: test.rows for name, (_, test) in SUBMISSION.items()}
NO_MODEL = "no model"  # what made a file that is filled with the most frequent label
_FOR_OTHER_TABLES = "for these tables, which are not the server's"
_HEADER = "index\tprediction"


def format_predictions(task, predictions):
    """Predictions as the server wants them: label strings from label numbers, or scores within [0, 5] with 3 decimals."""
    if task.is_regression:
        return [f"{min(5., max(0., float(score))):.3f}" for score in predictions]
    return [task.written[int(label)] for label in predictions]


def write_tsv(path, indices, predictions):
    """Write one file: a header, and `index TAB prediction` in the order of the indices. It appears whole or not at all."""
    rows = sorted(zip(indices, predictions))
    text = "\n".join([_HEADER, *(f"{index}\t{prediction}" for index, prediction in rows)]) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def check_tsv(name, content, rows):
    """Check one file of a submission, given as bytes; `rows`: the number it must have. PlainError names file and line."""
    task, _ = SUBMISSION[name]
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise PlainError(f"{name} is not UTF-8 text: write it again.") from None
    lines = text.removesuffix("\n").split("\n")
    if lines[0] != _HEADER:
        raise PlainError(f"{name}, line 1: the header must be 'index<TAB>prediction' and nothing else, not {lines[0][:60]!r}.")
    for number, line in enumerate(lines[1:], 2):
        cells = line.split("\t")
        if len(cells) != 2:
            raise PlainError(f"{name}, line {number}: {len(cells)} columns instead of 2 (index, prediction).")
        if cells[0] != str(number - 2):
            raise PlainError(f"{name}, line {number}: the index must be {number - 2}, not {cells[0][:20]!r}; "
                             "rows stand in the order of the test set.")
        _check_prediction(name, number, cells[1], task)
    if len(lines) != rows + 1:
        raise PlainError(f"{name} has {len(lines):,} lines instead of {rows + 1:,} (a header and {rows:,} predictions).")


def _check_prediction(name, number, prediction, task):
    if not task.is_regression:
        if prediction not in task.written:
            raise PlainError(f"{name}, line {number}: {prediction[:40]!r} is none of the labels {', '.join(task.written)}.")
        return
    try:
        score = float(prediction)
    except ValueError:
        score = math.nan
    if not 0 <= score <= 5:
        raise PlainError(f"{name}, line {number}: {prediction[:40]!r} is no number from 0 to 5.")


def check_submission(path, rows=None):
    """Check a zip, or a folder, with all eleven files and nothing else. rows: {file: rows}; None: the official numbers.

    Raises PlainError naming what is wrong; returns the number of lines by file, headers included.
    """
    content, rows = _read(Path(path)), rows or OFFICIAL_ROWS
    strange = sorted(set(content) - set(SUBMISSION))
    if strange:
        raise PlainError(f"{path} holds {strange[0]!r}, which is none of {', '.join(sorted(SUBMISSION))}: leave it out "
                         "(the zip must be flat, without folders).")
    lacking = sorted(set(SUBMISSION) - set(content))
    if lacking:
        raise PlainError(f"{path} lacks {', '.join(lacking)}: the server wants all eleven files.")
    for name in sorted(content):
        check_tsv(name, content[name], rows[name])
    return {name: content[name].count(b"\n") for name in sorted(content)}


def _read(path):
    if path.is_dir():
        return {file.name: file.read_bytes() if file.is_file() else b"" for file in path.iterdir()}
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(set(names)) < len(names):
                raise PlainError(f"{path} holds a file twice: make it again.")
            unknown = [name for name in names if name not in SUBMISSION]
            return dict.fromkeys(unknown, b"") or {name: archive.read(name) for name in names}
    except FileNotFoundError:
        raise PlainError(f"there is no {path}: give a zip or a folder below test_outputs/.") from None
    except (zipfile.BadZipFile, OSError) as error:
        raise PlainError(f"{path} is no zip that can be read ({error}): make it again.") from None


def read_record(path):
    """{file of a submission: what made it in words} of the record beside a folder; {} where there is none that can be read."""
    try:
        made_by = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(made_by, dict):
        return {}
    return {name: words for name, words in made_by.items() if name in SUBMISSION and isinstance(words, str)}


def make_zip(folder, rows=None):
    """Put the files of a folder into <folder>.zip and check it as `check_submission`. Returns the path.

    Raises PlainError, and leaves no zip, where the folder is not a valid submission.
    """
    folder = Path(folder)
    target = folder.with_name(folder.name + ".zip")
    target.unlink(missing_ok=True)  # an older one would be taken for this one
    check_submission(folder, rows)

    def write(file):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(SUBMISSION):
                archive.write(folder / name, name)
    write_atomically(target, write)
    check_submission(target, rows)
    return target


def complete_submission(folder, made_by, majority_for_missing=False, rows=None):
    """Fill what is missing if asked to, record what made each file in <folder>.json, and zip the folder if it is complete.

    made_by: {file: words} of those just written.   rows: as in `check_submission`, for tables that are not the official ones.
    """
    record, archive = (folder.with_name(folder.name + kind) for kind in (".json", ".zip"))
    archive.unlink(missing_ok=True)  # of an earlier state of the folder
    earlier = read_record(record)
    by_no_model = [name for name, words in earlier.items() if words.startswith(NO_MODEL) and name not in made_by]
    for name in by_no_model:
        (folder / name).unlink(missing_ok=True)
    if by_no_model and not majority_for_missing:
        print(f"Removed, because no model made them and majority_for_missing is False: {', '.join(by_no_model)}")
    there = {path.name: "not made by finetune.py" for path in folder.glob("*.tsv")}
    made_by = {**there, **{name: words for name, words in earlier.items() if name in there}, **made_by}
    if majority_for_missing:
        made_by |= write_majorities(folder, rows)
    write_atomically(record, lambda file: file.write(json.dumps(made_by, indent=1).encode() + b"\n"))
    missing = [name for name in SUBMISSION if not (folder / name).exists()]
    if missing:
        print(f"No zip is made, because {', '.join(missing)} are missing: finetune those tasks in this group, with their test files at "
              "hand, or say majority_for_missing=True")
        return
    by_no_model = sum(words.startswith(NO_MODEL) for words in made_by.values())
    try:
        print(f"{make_zip(folder, rows)} is complete and valid", *[_FOR_OTHER_TABLES] * bool(rows),
              *[f"({by_no_model} of its files were made by no model)"] * bool(by_no_model))
    except PlainError as error:  # the scores are worth showing all the same
        print(f"No zip is made: {error}")


def write_majorities(folder, rows=None):
    """Write every file that is not in the folder with one label for all rows; returns {file: words}. rows: as in `check_submission`."""
    made_by = {}
    for name, (task, test) in SUBMISSION.items():
        if not (folder / name).exists():
            n = (rows or {}).get(name, test.rows)
            [prediction] = format_predictions(task, [task.majority])
            write_tsv(folder / name, range(n), [prediction] * n)
            made_by[name] = f"{NO_MODEL}: {prediction} in every row"
            print(f"{name:12} by {made_by[name]}")
    return made_by


def rows_of(glue_dir):
    """{file of a submission: rows of its test set in this folder}; files that are not there keep the official number."""
    rows = dict(OFFICIAL_ROWS)
    for name in TASKS:
        splits = load_task(name, glue_dir).splits
        rows |= {test.tsv: len(splits[test.split]) for test in TASKS[name].tests if test.split in splits}
    return rows


