"""GLUE's tables from files, and malformed rows reported with file and line. From the hub: text/test_hub.py."""

import re

import pandas as pd
import pytest

from _utils.errors import UserError
from _utils.tasks.glue import TASKS, load_task
from _utils.tasks.synthetic import write_synthetic_glue
from _utils.tasks.task import Task
from _utils.tasks.task_names import GLUE_TASKS


@pytest.mark.parametrize("name", ["cola", "sst2", "mrpc", "stsb", "rte", "wnli"])
def test_the_official_download_is_read_without_notices_and_has_the_known_majorities(shared, name):
    task, data = TASKS[name], load_task(name, shared / "data/glue")
    labels = pd.Series(data.splits["train"]["label"])
    assert not data.missing and not data.messages and len(labels) == task.official_rows["train"]
    assert task.majority == (labels.mode()[0] if task.labels else pytest.approx(labels.mean(), abs=.01))


ROWS = "".join(f"{i}\tThe first text {i}.\tThe second text.\tentailment\n" for i in range(300))
HEADER = "index\tsentence1\tsentence2\tlabel\n"


def rte(folder, train=HEADER + ROWS, dev=HEADER + ROWS, test="index\tsentence1\tsentence2\n0\ta\tb\n"):
    """Write RTE's three files and load them."""
    (folder / "RTE").mkdir()
    for name, content in (("train", train), ("dev", dev), ("test", test)):
        (folder / "RTE" / f"{name}.tsv").write_bytes(content.encode("latin-1" if "\xe9" in content else "utf-8"))
    return load_task("rte", folder)


@pytest.mark.parametrize("row, message", [
    ("300\tonly one text\tentailment", "line 302"),
    ("300\ta\tb\tmaybe", "line 302: .*'label'.*'maybe'"),
    ("300\ta\t \tentailment", "line 302: .*'sentence2'"),
    ("", "line 302"),
])
def test_a_malformed_row_is_skipped_and_reported(tmp_path, row, message):
    data = rte(tmp_path, train=HEADER + ROWS + row + "\n301\ta\tb\tnot_entailment\n")
    assert len(data.splits["train"]) == 301 and data.splits["train"][-1]["label"] == 1
    assert re.search(f"RTE/train.tsv.*{message}", data.messages[0])


def test_quotes_and_unicode_line_separators_are_ordinary_characters_and_a_byte_order_mark_is_skipped(tmp_path):
    data = rte(tmp_path, train="\ufeff" + HEADER +
               '0\t"An opened quote\tb "quoted" text\tentailment\n1\tone\u2028two\x85three\tb"\tentailment\r\n')
    assert data.splits["train"]["sentence1"][:] == ['"An opened quote', "one\u2028two\x85three"] and not data.messages
    assert data.splits["train"]["label"][:] == [0, 0]


@pytest.mark.parametrize("files, message", [
    (dict(train=HEADER + ROWS.replace("entailment", "yes")), "train.tsv, line 2: .*'label'.*'yes'"),
    (dict(train=HEADER + ROWS.replace("\t", "  ")), "train.tsv, line 2"),
    (dict(train=ROWS), "train.tsv: .*'sentence"), (dict(dev=HEADER), "dev.tsv"),
    (dict(dev=HEADER + "0\tcaf\xe9\tb\tentailment\n"), "dev.tsv, line 2 .*UTF-8"),
    (dict(test="index\tsentence1\tsentence2\n0\ta\tb\n1\ta\n"), "test.tsv, line 3"),
])
def test_a_file_with_other_content_is_rejected(tmp_path, files, message):
    with pytest.raises(UserError, match=message):
        rte(tmp_path, **files)


def test_rows_with_scores_outside_the_range_are_skipped(tmp_path):
    (tmp_path / "STS-B").mkdir()
    lines = ["sentence1\tsentence2\tscore", "a\tb\t5.5", "a\tb\tnan", "a\tb\thigh", *["a\tb\t5.0"] * 400]
    (tmp_path / "STS-B/train.tsv").write_text("\n".join(lines))
    data = load_task("stsb", tmp_path)
    assert len(data.splits["train"]) == 400 and all(f"line {line}" in data.messages[0] for line in (2, 3, 4))


def test_an_empty_text_of_a_test_set_is_kept(tmp_path):
    data = rte(tmp_path, test="index\tsentence1\tsentence2\n0\ta\t\n1\ta\tb\n")
    assert data.splits["test"]["sentence2"][:] == ["", "b"]


def test_ax_is_found_under_its_other_name(tmp_path, glue):
    (tmp_path / "diagnostic").mkdir()
    (tmp_path / "diagnostic/diagnostic.tsv").write_bytes((glue / "AX/diagnostic.tsv").read_bytes())
    assert len(load_task("mnli", tmp_path).splits["test_ax"]) == 200


def test_a_task_in_the_layout_of_glue_is_loaded_from_its_folder(tmp_path):
    (tmp_path / "Tenth").mkdir()
    for split, header, cells in ("train", "\tlabel", "\tyes"), ("dev", "\tlabel", "\tno"), ("test", "", ""):
        (tmp_path / f"Tenth/{split}.tsv").write_text(f"text{header}\na text{cells}\n")
    task = Task("tenth", "Tenth", ("text",), ("no", "yes"), test_files={"test": "Tenth.tsv"})
    data = load_task(task, tmp_path)
    assert [data.splits[split]["label"][:] for split in ("train", "validation", "test")] == [[1], [0], [-1]]


def test_each_task_can_be_named_in_the_configuration():
    assert [*TASKS] == [*GLUE_TASKS]


def test_the_synthetic_tables_are_reproducible(glue, tmp_path):
    write_synthetic_glue(tmp_path)
    files = [path.relative_to(glue) for path in glue.rglob("*.*")]
    assert len(files) == 32 and all((tmp_path / file).read_bytes() == (glue / file).read_bytes() for file in files)
