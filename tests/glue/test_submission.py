"""Submission files: the written ones pass the check, and problems are reported with file and line."""
import zipfile

import pytest

from _utils.commands.glue import glue_submission
from _utils.custom.custom_regression import CustomRegression
from _utils.errors import UserError
from _utils.tasks.glue import TASKS
from _utils.tasks.submission import OFFICIAL_ROWS, majority_baseline, make_zip

ROWS = dict.fromkeys(OFFICIAL_ROWS, 5)


@pytest.fixture
def folder(tmp_path):
    """A valid submission with five rows per file."""
    folder = tmp_path / "group"
    folder.mkdir()
    for name in OFFICIAL_ROWS:
        (folder / name).write_bytes(majority_baseline(name, 5))
    return folder


def test_a_submission_of_official_size_is_valid(tmp_path):
    (tmp_path / "group").mkdir()
    path = make_zip(tmp_path / "group", OFFICIAL_ROWS, majority_for_missing=True)
    with zipfile.ZipFile(path) as archive:
        lines = {name.removesuffix(".tsv"): archive.read(name).count(b"\n") for name in archive.namelist()}
        assert lines == {"AX": 1105, "CoLA": 1064, "MNLI-m": 9797, "MNLI-mm": 9848, "MRPC": 1726, "QNLI": 5464,
                         "QQP": 390966, "RTE": 3001, "SST-2": 1822, "STS-B": 1380, "WNLI": 147}
        assert archive.read("RTE.tsv").startswith(b"index\tprediction\n0\tentailment\n")
        assert archive.read("STS-B.tsv").endswith(b"1378\t2.700\n")
    glue_submission(str(path))


def test_predictions_have_the_format_of_the_server():
    assert TASKS["stsb"].prediction_files.written([-.2, 2.34567, 5.7]) == ["0.000", "2.346", "5.000"]
    assert TASKS["mnli"].prediction_files.written([0, 1, 2]) == ["entailment", "neutral", "contradiction"]
    for name in ("cola", "sst2", "mrpc", "qqp", "wnli"):
        assert TASKS[name].prediction_files.written([1, 0]) == ["1", "0"]
    for name in ("qnli", "rte"):
        assert TASKS[name].prediction_files.written([1, 0]) == ["not_entailment", "entailment"]
    own = CustomRegression("own", "own", ("text",))
    written = own.prediction_files.written([3.21987654e-5, -4., 5000.51, 1234567.])
    assert written == ["3.219877e-05", "-4", "5000.51", "1234567"]


@pytest.mark.parametrize("name, old, new, message", [
    ("CoLA.tsv", "index\tprediction", "\tindex\tprediction", "CoLA.tsv, line 1"),
    ("CoLA.tsv", "2\t1", "2\tacceptable", "CoLA.tsv, line 4: .*'acceptable'"),
    ("WNLI.tsv", "3\t0", "4\t0", "WNLI.tsv, line 5"), ("WNLI.tsv", "\n4\t0", "", "WNLI.tsv.* 5 "),
    ("WNLI.tsv", "\n4\t0", "\n4\t0\n5\t0", "WNLI.tsv.* 7 "),
    ("STS-B.tsv", "2\t2.700", "2\t5.001", "STS-B.tsv, line 4: .*'5.001'"),
    ("STS-B.tsv", "2\t2.700", "2\tnan", "STS-B.tsv, line 4"),
    ("STS-B.tsv", "2\t2.700", "2\t2.700\t", "STS-B.tsv, line 4"),
])
def test_an_invalid_file_is_reported_with_its_line_and_no_zip_is_left(folder, name, old, new, message):
    target, text = make_zip(folder, ROWS), (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=f"{message}.*{target.name}"):
        make_zip(folder, ROWS)
    assert not target.exists()
