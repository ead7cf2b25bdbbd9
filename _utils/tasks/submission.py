"""Checks and zips the files of a submission to the GLUE server. Command: `python -m _utils glue_submission`."""
import json
import zipfile
from pathlib import Path

import xxhash

from _utils.errors import UserError, as_user_error
from _utils.files import write_atomically, write_text_atomically
from _utils.names import check_file
from _utils.tasks.glue import TASKS, load_task
from _utils.tasks.names import GLUE_TEST_FILES
from _utils.tasks.tables import write_rows

SUBMISSION = {file: (TASKS[name], split) for name, files in GLUE_TEST_FILES.items() for split, file in files.items()}
OFFICIAL_ROWS = {file: task.official_rows[split] for file, (task, split) in SUBMISSION.items()}
MAJORITY = "majority baseline"  # who made a file that no model predicted


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
        if not task.files.accepts(prediction):
            raise UserError(f"{name}, line {number + 2}: invalid prediction {prediction[:40]!r}. Use "
                            f"{task.files.accepted}.")
    if len(lines) != rows:
        raise UserError(f"{name} has {len(lines) + 1:,} lines instead of {rows + 1:,} (a header and {rows:,} "
                        f"predictions). The official number is {OFFICIAL_ROWS[name]:,}; `python -m _utils "
                        "glue_submission FILE GLUE_DIR` counts the rows of other tables.")


def check_submission(path, rows):
    """Check that a zip or a folder holds the eleven files, each valid; returns {file: number of lines with the header}.

    rows: {file: expected rows}.   Raises UserError with the first problem.
    """
    content = _read(Path(path))
    if unknown := sorted(content.keys() - SUBMISSION.keys()):
        raise UserError(f"{path} holds {unknown[0]!r}, which is not one of {', '.join(sorted(SUBMISSION))}. Remove it "
                        "(the zip must be flat, without folders).")
    if missing := sorted(SUBMISSION.keys() - content.keys()):
        raise UserError(f"{path} lacks {', '.join(missing)}. The GLUE server expects all eleven files: finetune these "
                        "tasks in this group, with their test files, or set majority_for_missing=True.")
    for name in sorted(content):
        check_tsv(name, content[name], rows[name])
    return {name: len(content[name].splitlines()) for name in sorted(content)}


def _read(path):
    """{file: bytes} of a zip, in which unknown files are not read, or of a folder, in which they are ignored."""
    if path.is_dir():
        return {name: (path / name).read_bytes() for name in SUBMISSION if (path / name).is_file()}
    check_file(path, "Pass a zip or a folder in test_outputs/.")
    message = f"{path} is not a readable zip ({{error}}). Create it again."
    with as_user_error(message), zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) if name in SUBMISSION else b"" for name in archive.namelist()}


def make_zip(folder, rows):
    """Zip the files of a submission to <folder>.zip and return its path.

    Raises UserError as `check_submission` does, and leaves no zip, if the folder is not a valid submission.
    """
    target = Path(f"{folder}.zip")
    target.unlink(missing_ok=True)  # an outdated zip would look like the new one
    check_submission(folder, rows)

    def write(file):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(SUBMISSION):
                archive.write(Path(folder, name), name)
    write_atomically(target, write)
    return target


def read_record(folder):
    """{file: what made it} of the files of a folder that are the same as in the record beside it."""
    record = Path(f"{folder}.json")
    entries = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    return {name: entry["made_by"] for name, entry in entries.items()
            if (folder / name).is_file() and entry["xxh3"] == _checksum(folder / name)}


def _checksum(path):
    return xxhash.xxh3_64_hexdigest(path.read_bytes())


def complete_submission(folder, made_by, majority_for_missing, rows):
    """Fill in missing files if wanted, record in <folder>.json what made each file, and zip a complete folder.

    Majority baselines of an earlier command are deleted first: a model may have replaced them, or they are unwanted.
    made_by: {file: what made it} of the files just written.   rows: {file: rows} of the test sets.
    Returns the path of the zip, or None if there is none.
    """
    known = read_record(folder) | made_by
    for name in [name for name, text in known.items() if text.startswith(MAJORITY)]:
        (folder / name).unlink()
    files = [path.name for path in filter(Path.is_file, folder.glob("*"))]
    made_by = {name: known.get(name, "not written by finetune.py") for name in files}
    if majority_for_missing:
        made_by |= write_majorities(folder, rows)
    record = {name: {"made_by": text, "xxh3": _checksum(folder / name)} for name, text in made_by.items()}
    if record or known:
        write_text_atomically(Path(f"{folder}.json"), json.dumps(record, indent=1) + "\n")
    if not SUBMISSION.keys() & (known | record).keys():  # only custom tasks
        return None
    try:
        path = make_zip(folder, rows)
    except UserError as error:  # the scores are still worth reporting
        print(f"No zip for the GLUE server: {error}")
        return None
    tables = "" if rows == OFFICIAL_ROWS else " (for tables other than the official ones)"
    print(f"{path} is complete and valid{tables}")
    return path


def write_majorities(folder, rows):
    """Write each missing file of a folder with the majority label in all rows; returns {file: what made it}."""
    made_by = {}
    for name in sorted(SUBMISSION.keys() - {path.name for path in folder.glob("*")}):
        task, _ = SUBMISSION[name]
        [prediction] = task.files.written([task.majority])
        write_rows(folder / name, [prediction] * rows[name])
        made_by[name] = f"{MAJORITY}: {prediction} in every row"
    if made_by:
        print(f"With the majority label in every row: {', '.join(made_by)}")
    return made_by


def rows_of(glue_dir):
    """{file: rows} of the test sets in a GLUE folder; the official number for test sets that are missing."""
    splits = {file: load_task(task, glue_dir, [split]).splits for file, (task, split) in SUBMISSION.items()}
    return OFFICIAL_ROWS | {file: len(rows) for file, of_file in splits.items() for rows in of_file.values()}
