"""Writes, checks and zips the files of a submission to the GLUE server. Command: `python -m _utils glue_submission`."""
import json
import math
import zipfile
import zlib
from pathlib import Path

import xxhash

from _utils.errors import PlainError
from _utils.glue.own_files import add_column
from _utils.glue.tables import load_task
from _utils.glue.tasks import GLUE
from _utils.runs.checkpoints import write_atomically

SUBMISSION = {test.tsv: (task, test) for task in GLUE for test in task.tests}  # {file: (Task, TestSet)}
OFFICIAL_ROWS = {name: test.rows for name, (_, test) in SUBMISSION.items()}
MAJORITY = "majority baseline"  # who made a file that no model predicted
_MAJORITY_MARKS = (MAJORITY, "no model")  # the second one in records of earlier versions
_UNKNOWN = "not written by finetune.py"
_HEADER = "index\tprediction"


def format_predictions(task, predictions):
    """Label strings from class ids. Scores: in the task's range with 3 decimals, as the server expects them; others with 6 digits."""
    if task.is_regression and not task.score_range:
        return [f"{float(score):.6g}" for score in predictions]
    if task.is_regression:
        low, high = task.score_range
        return [f"{min(high, max(low, float(score))):.3f}" for score in predictions]
    return [task.written_labels[int(label)] for label in predictions]


def write_tsv(path, indices, predictions):
    """Write one file atomically: a header, then `index TAB prediction`, sorted by index."""
    rows = sorted(zip(indices, predictions))
    text = "\n".join([_HEADER, *(f"{index}\t{prediction}" for index, prediction in rows)]) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def write_predictions(path, task, test, rows, predictions):
    """Write the predictions for a test set: as the GLUE server expects them, or those of an own task beside the columns of its file.

    rows: the test set.   predictions: class ids or scores; for tagging, of all words.
    Raises PlainError if the file of an own task has changed since it was read.
    """
    predicted = format_predictions(task, predictions)
    if not task.is_own:
        write_tsv(path, rows["index"], predicted)
        return
    if task.is_regression:
        predicted = list(map(float, predicted))
    elif task.is_tagging:
        tags = iter(predicted)
        predicted = [[next(tags) for _ in words] for words in rows["text"]]
    add_column(test.file, path, predicted, test.key)


def check_tsv(name, content, rows):
    """Check the bytes of one file, which must have this many rows. Raises PlainError with file and line."""
    task, _ = SUBMISSION[name]
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise PlainError(f"{name} is not UTF-8 text. Write it again.") from None
    lines = text.removesuffix("\n").split("\n")
    if lines[0] != _HEADER:
        raise PlainError(f"{name}, line 1: the header must be exactly 'index<TAB>prediction', not {lines[0][:60]!r}.")
    for number, line in enumerate(lines[1:], 2):
        cells = line.split("\t")
        if len(cells) != 2:
            raise PlainError(f"{name}, line {number}: {len(cells)} columns instead of 2 (index, prediction).")
        if cells[0] != str(number - 2):
            raise PlainError(f"{name}, line {number}: the index must be {number - 2}, not {cells[0][:20]!r}. Keep the test set's order.")
        _check_prediction(name, number, cells[1], task)
    if len(lines) != rows + 1:
        raise PlainError(f"{name} has {len(lines):,} lines instead of {rows + 1:,} (a header and {rows:,} predictions)."
                         + " This is the official number; `python -m _utils glue_submission FILE GLUE_DIR` counts the rows of other tables."
                         * (rows == OFFICIAL_ROWS[name]))


def _check_prediction(name, number, prediction, task):
    if not task.is_regression:
        if prediction not in task.written_labels:
            raise PlainError(f"{name}, line {number}: invalid label {prediction[:40]!r}. Use {', '.join(task.written_labels)}.")
        return
    try:
        score = float(prediction)
    except ValueError:
        score = math.nan
    low, high = task.score_range
    if not low <= score <= high:
        raise PlainError(f"{name}, line {number}: {prediction[:40]!r} is not a number from {low:g} to {high:g}.")


def check_submission(path, rows=None):
    """Check that a zip or a folder holds exactly the eleven files, each valid; returns {file: number of lines with the header}.

    rows: {file: expected rows}; None: the official numbers.   Raises PlainError with the first problem.
    """
    content, rows = _read(Path(path)), rows or OFFICIAL_ROWS
    unknown = sorted(set(content) - set(SUBMISSION))
    if unknown:
        raise PlainError(f"{path} holds {unknown[0]!r}, which is not one of {', '.join(sorted(SUBMISSION))}. Remove it (the zip must be "
                         "flat, without folders).")
    missing = sorted(set(SUBMISSION) - set(content))
    if missing:
        raise PlainError(f"{path} lacks {', '.join(missing)}. The GLUE server expects all eleven files.")
    for name in sorted(content):
        check_tsv(name, content[name], rows[name])
    return {name: content[name].count(b"\n") for name in sorted(content)}


def _read(path):
    """{file: bytes} of a folder, without the files of own tasks, or of a zip; the content of unknown files is not read."""
    if path.is_dir():
        of_own_tasks = {name for name, made_by in read_record(path).items() if name not in SUBMISSION and made_by != _UNKNOWN}
        return {file.name: file.read_bytes() if file.is_file() else b"" for file in path.iterdir() if file.name not in of_own_tasks}
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(set(names)) < len(names):
                raise PlainError(f"{path} holds a file twice. Create it again.")
            return {name: archive.read(name) if name in SUBMISSION else b"" for name in names}
    except FileNotFoundError:
        raise PlainError(f"File not found: '{path}'. Pass a zip or a folder in test_outputs/.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise PlainError(f"{path} is not a readable zip ({error}). Create it again.") from None


def read_record(folder):
    """{file: what made it} of the files of a folder, from the record beside it; {} if there is no readable record.

    A file that was replaced since it was recorded is unknown. In records of earlier versions, which have no checksums, none is.
    """
    try:
        record = json.loads(_record_of(folder).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(record, dict):
        return {}
    made_by = {}
    for name, entry in record.items():
        entry = {"made_by": entry} if isinstance(entry, str) else entry
        if isinstance(entry, dict) and isinstance(entry.get("made_by"), str):
            is_replaced = (folder / name).is_file() and entry.get("xxh3") not in (None, _checksum(folder / name))
            made_by[name] = _UNKNOWN if is_replaced else entry["made_by"]
    return made_by


def _write_record(folder, made_by):
    record = {name: {"made_by": text, "xxh3": _checksum(folder / name)} for name, text in made_by.items()}
    write_atomically(_record_of(folder), lambda file: file.write(json.dumps(record, indent=1).encode() + b"\n"))


def _checksum(path):
    return xxhash.xxh3_64_hexdigest(path.read_bytes())


def _record_of(folder):
    return folder.with_name(folder.name + ".json")


def make_zip(folder, rows=None):
    """Zip the files of a folder to <folder>.zip, check it as `check_submission` does, and return its path.

    Raises PlainError, and leaves no zip, if the folder is not a valid submission.
    """
    folder = Path(folder)
    target = folder.with_name(folder.name + ".zip")
    target.unlink(missing_ok=True)  # an outdated zip would look like the new one
    check_submission(folder, rows)

    def write(file):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(SUBMISSION):
                archive.write(folder / name, name)
    write_atomically(target, write)
    check_submission(target, rows)
    return target


def complete_submission(folder, made_by, majority_for_missing=False, rows=None):
    """Fill in missing files if wanted, record in <folder>.json what made each file, and zip a complete folder.

    made_by: {file: what made it} of the files just written.   rows: as in `check_submission`, for other than the official tables.
    Returns the path of the zip, or None if there is none.
    """
    folder.with_name(folder.name + ".zip").unlink(missing_ok=True)  # it is outdated now
    earlier = _without_majorities(folder, {**read_record(folder), **made_by}, majority_for_missing)
    existing = {path.name: earlier.get(path.name, _UNKNOWN) for path in folder.glob("*") if path.is_file()}
    made_by = existing | made_by
    if majority_for_missing:
        made_by |= write_majorities(folder, rows)
    _write_record(folder, made_by)
    missing = [name for name in SUBMISSION if name not in made_by]
    if len(missing) == len(SUBMISSION):  # only own tasks
        return None
    if missing:
        print(f"No zip for the GLUE server, which needs all tasks: missing {', '.join(missing)}. To submit, finetune these tasks in this "
              "group, with their test files, or set majority_for_missing=True")
        return None
    try:
        path = make_zip(folder, rows)
    except PlainError as error:  # the scores are still worth reporting
        print(f"No zip: {error}")
        return None
    print(f"{path} is complete and valid{_remarks(made_by, rows)}")
    return path


def _without_majorities(folder, made_by, keep):
    """Delete the majority baselines that an earlier command wrote, because a model may have replaced them or they are unwanted."""
    majorities = [name for name, text in made_by.items() if text.startswith(_MAJORITY_MARKS)]
    for name in majorities:
        (folder / name).unlink(missing_ok=True)
    if majorities and not keep:
        print(f"Removed the majority baselines {', '.join(majorities)}, because majority_for_missing is False")
    return {name: text for name, text in made_by.items() if name not in majorities}


def _remarks(made_by, rows):
    """What to know about a valid zip: other tables than the official ones, majority baselines."""
    n_majorities = sum(text.startswith(_MAJORITY_MARKS) for text in made_by.values())
    remarks = [f"{n_majorities} of its files are majority baselines"] if n_majorities else []
    if rows not in (None, OFFICIAL_ROWS):
        remarks.insert(0, "for tables other than the official ones")
    return f" ({'; '.join(remarks)})" if remarks else ""


def write_majorities(folder, rows=None):
    """Write each missing file of a folder with the majority label in all rows; returns {file: what made it}."""
    made_by = {}
    for name, (task, test) in SUBMISSION.items():
        if not (folder / name).exists():
            n = (rows or {}).get(name, test.rows)
            [prediction] = format_predictions(task, [task.majority])
            write_tsv(folder / name, range(n), [prediction] * n)
            made_by[name] = f"{MAJORITY}: {prediction} in every row"
            print(f"{name:12} by {made_by[name]}")
    return made_by


def rows_of(glue_dir):
    """{file: rows} of the test sets in a GLUE folder; the official number for test sets that are missing."""
    rows = dict(OFFICIAL_ROWS)
    for task in GLUE:
        splits = load_task(task, glue_dir, [test.split for test in task.tests]).splits
        rows |= {test.tsv: len(splits[test.split]) for test in task.tests if test.split in splits}
    return rows
