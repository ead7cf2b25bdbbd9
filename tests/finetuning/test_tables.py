"""GLUE's tables from files, and malformed rows reported with file and line. From the hub: robustness/test_hub.py."""
from pathlib import Path

import pandas as pd
import pytest

from _utils.errors import UserError
from _utils.finetuning.preparation import print_tables
from _utils.tasks.glue import TASKS, load_task
from _utils.tasks.synthetic import write_synthetic_glue


@pytest.mark.parametrize("name, split, i, row", [
    ("cola", "train", 0, {"sentence": "Our friends won't buy this analysis, let alone the next one we "
                                      "propose.", "label": 1}),
    ("sst2", "validation", 1, {"sentence": "unflinchingly bleak and desperate ", "label": 0}),
    ("stsb", "validation", 1, {"label": 4.75}),
    ("ax", "test", 0,
     {"premise": "The cat sat on the mat.", "hypothesis": "The cat did not sit on the mat.", "label": -1}),
])
def test_rows_of_the_official_files(shared, name, split, i, row):
    found = load_task(name, shared / "data/glue").splits[split][i]
    assert {key: found[key] for key in row} == row


def test_rows_and_missing_files_of_the_official_download_are_printed(shared, capsys):
    for name in ("cola", "sst2", "mrpc", "stsb", "rte", "wnli", "ax"):
        task, data = TASKS[name], load_task(name, shared / "data/glue")
        assert not data.missing and not data.notices
        print_tables({name: data})
        assert " of " not in capsys.readouterr().out
        if name != "ax":
            labels = pd.Series(data.splits["train"]["label"])
            assert task.majority == (labels.mode()[0] if task.labels else pytest.approx(labels.mean(), abs=.01))
    print_tables({name: load_task(name, shared / "data/glue") for name in ("qqp", "mnli")})
    printed = capsys.readouterr().out
    assert "dev.tsv not found" in printed and "test.tsv not found" in printed
    assert "MNLI   train 10,471 of 392,702" in printed


ROWS = "".join(f"{i}\tThe first text {i}.\tThe second text.\tentailment\n" for i in range(300))
HEADER = "index\tsentence1\tsentence2\tlabel\n"


def rte(folder, train=HEADER + ROWS, dev=HEADER + ROWS, test="index\tsentence1\tsentence2\n0\ta\tb\n"):
    """Write RTE's three files and load them."""
    (folder / "RTE").mkdir(exist_ok=True)
    for name, content in (("train", train), ("dev", dev), ("test", test)):
        (folder / "RTE" / f"{name}.tsv").write_bytes(content.encode() if isinstance(content, str) else content)
    return load_task("rte", folder)


@pytest.mark.parametrize("row, message", [
    ("300\tonly one text\tentailment", "line 302: 3 columns instead of 4"),
    ("300\ta\tb\tmaybe", "line 302: the column 'label' contains 'maybe', which is not one of entailment, "
                         "not_entailment"),
    ("300\ta\t \tentailment", "line 302: the column 'sentence2' contains '"),
    ("", "line 302: 1 columns instead of 4"),
])
def test_a_malformed_row_is_skipped_and_reported(tmp_path, row, message):
    data = rte(tmp_path, train=HEADER + ROWS + row + "\n301\ta\tb\tnot_entailment\n")
    assert len(data.splits["train"]) == 301 and data.splits["train"][-1]["label"] == 1
    [notice] = data.notices
    assert message in notice and str(Path("RTE/train.tsv")) in notice and "skipped" in notice


def test_quotes_and_unicode_line_separators_are_ordinary_characters_and_a_byte_order_mark_is_skipped(tmp_path):
    data = rte(tmp_path, train="\ufeff" + HEADER +
               '0\t"An opened quote\tb "quoted" text\tentailment\n1\tone\u2028two\x85three\tb"\tentailment\r\n')
    assert data.splits["train"]["sentence1"][:] == ['"An opened quote', "one\u2028two\x85three"] and not data.notices
    assert data.splits["train"]["label"][:] == [0, 0]


@pytest.mark.parametrize("files, message", [
    (dict(train=HEADER + ROWS.replace("entailment", "yes")), "train.tsv, line 2: the column 'label' contains "
                                                             "'yes'.*300 of 300 rows"),
    (dict(train=HEADER + ROWS.replace("\t", "  ")), "train.tsv, line 2: 1 columns instead of 4.*300 of 300 rows"),
    (dict(train=ROWS), "train.tsv: missing column 'sentence1' .found: 0, The first text"),
    (dict(dev=HEADER), "dev.tsv has no rows"),
    (dict(dev=(HEADER + "0\tcaf").encode() + b"\xe9\tb\tentailment\n"), "dev.tsv, line 2 is not UTF-8"),
    (dict(test="index\tsentence1\tsentence2\n0\ta\tb\n1\ta\n"), "test.tsv, line 3: 2 columns instead of 3 .*no row of "
                                                                "a test set"),
])
def test_a_file_with_other_content_is_rejected(tmp_path, files, message):
    with pytest.raises(UserError, match=message) as error:
        rte(tmp_path, **files)
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)


def test_rows_with_scores_outside_the_range_are_skipped(tmp_path):
    (tmp_path / "STS-B").mkdir()
    lines = ["sentence1\tsentence2\tscore", "a\tb\t5.5", "a\tb\tnan", "a\tb\thigh", *["a\tb\t5.0"] * 400]
    (tmp_path / "STS-B/train.tsv").write_text("\n".join(lines))
    data = load_task("stsb", tmp_path)
    assert len(data.splits["train"]) == 400 and all(f"line {line}" in data.notices[0] for line in (2, 3, 4))


def test_an_empty_text_of_a_test_set_is_kept(tmp_path):
    data = rte(tmp_path, test="index\tsentence1\tsentence2\n0\ta\t\n1\ta\tb\n")
    assert data.splits["test"]["sentence2"][:] == ["", "b"]


def test_ax_is_found_under_its_other_name(tmp_path, glue):
    (tmp_path / "diagnostic").mkdir()
    (tmp_path / "diagnostic/diagnostic.tsv").write_bytes((glue / "AX/diagnostic.tsv").read_bytes())
    assert len(load_task("ax", tmp_path).splits["test"]) == 200


def test_the_synthetic_tables_are_reproducible(glue, tmp_path):
    write_synthetic_glue(tmp_path)
    files = sorted(path.relative_to(glue) for path in glue.rglob("*.*"))
    assert len(files) == 32 and all((tmp_path / file).read_bytes() == (glue / file).read_bytes() for file in files)
