"""The README's tree of files is the repository's, and its table of details names facts and tests that are there."""
import re


def test_every_module_stands_in_the_tree_and_every_file_of_the_tree_is_there(repo):
    tree = re.search(r"## Files\n\n```\n(.*?)```", (repo / "README.md").read_text(), re.S)[1]
    modules = {path.name for path in (repo / "_utils").glob("*.py") if path.name != "__init__.py"}
    assert set(re.findall(r"^  (\w+\.py) ", tree, re.M)) == modules
    for name in re.findall(r"^(\S+)", tree, re.M):
        assert (repo / name).exists(), name


def test_no_placeholder_is_left(repo):
    assert not re.search(r"@\w+@", (repo / "README.md").read_text())


def test_every_detail_that_is_followed_names_facts_and_tests_that_are_there(repo):
    section = re.search(r"## What we follow\n(.*?)\n## ", (repo / "README.md").read_text(), re.S)[1]
    lines = [line for line in section.split("\n") if line.startswith("| ") and "**" not in line]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    explained = (repo / "tests/golden/README.md").read_text()
    spans = [(kind, int(first), int(last or first)) for kind, first, last in re.findall(r"\b([FD])(\d+)(?:-[FD](\d+))?", explained)]
    for detail, google, theirs, here, facts, tests in rows[1:]:
        assert google and theirs and here, detail
        assert re.fullmatch(r"[FD]\d+(, [FD]\d+)*", facts), detail
        for fact in facts.split(", "):
            assert any(kind == fact[0] and first <= int(fact[1:]) <= last for kind, first, last in spans), fact
        named = re.findall(r"`(test_\w+\.py)`", tests)
        assert named and all((repo / "tests" / name).exists() for name in named), detail
        needs_texts = "test_golden_examples.py" in named or detail in ("encoding", "MRPC, STS-B in both orders")
        assert needs_texts == ("*" in tests), detail
    assert len(rows) > 40
