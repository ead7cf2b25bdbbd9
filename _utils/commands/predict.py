"""Predict with a finetuned model: `python -m _utils predict`."""
import importlib
from pathlib import Path

from _utils.custom.definition import FORMATS
from _utils.custom.table_files import read_table
from _utils.errors import UserError
from _utils.names import check_file
from _utils.tasks.tables import check_columns, malformed, read_tsv


def predict(checkpoint, file):
    """Print the predictions of a finetuned model for a file. Arguments and output as in `_utils/__main__.py`."""
    model = importlib.import_module("finetune").load(checkpoint)  # the networks are defined there
    task = model.task
    content = task.inputs.text_column  # UserError if the task reads other files
    table, columns = read_texts(file, task)
    # An empty line gets an empty line; a row of a table without text is predicted, so that rows correspond.
    may_be_blank = not is_table(file)
    is_blank = table.rows[columns].map(lambda cell: may_be_blank and not str(cell).strip()).all(axis=1)
    if bad := [place for place in table.problems if not is_blank[place]]:
        wanted = f"{len(columns)} texts, separated by tabs" if len(columns) > 1 else f"{content.accepted}, without tabs"
        advice = f"For {task.title}, each line needs {wanted}."
        if is_table(file):
            advice = "Each row needs as many cells as the header; quote cells of a CSV file that contain its delimiter."
        raise UserError(f"{table.source}, {bad[0]}: {table.problems[bad[0]]} ({malformed(bad, len(is_blank))}). "
                        f"{advice}")
    texts = table.rows.loc[~is_blank, columns]
    predictions = model.predict_table(table._replace(rows=texts, problems={}), columns)
    header, lines = task.prediction_files.lines(texts, predictions)
    if header:
        print(header)
    lines = iter(lines)
    for blank in is_blank:
        print("" if blank else next(lines))


def is_table(file):
    """Whether a file has a header or columns, instead of one text or pair per line."""
    return Path(file).suffix.lower() in FORMATS.keys() - {".txt"}


def read_texts(file, task):
    """(Table, its columns of texts) of a file with one row per line, or of a table."""
    if file != "-":
        check_file(file, "Pass a file with one text, or two separated by a tab, per line, a table, or - for standard "
                         "input.")
    if not is_table(file):
        lines = read_tsv(file, task.texts, keep_empty=True)
        return task.inputs.in_rows(lines), list(task.texts)
    table, columns = task.inputs.in_rows(read_table(file)), list(task.columns_in_files[:-1])
    check_columns(table, columns, "A table needs the columns of the texts that the training file has. A file without a "
                                  "header, with one row per line, ends with .txt.")
    return table, columns
