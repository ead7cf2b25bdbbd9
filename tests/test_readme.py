"""The README's tree of files is the repository's."""
import re


def test_every_module_stands_in_the_tree_and_every_file_of_the_tree_is_there(repo):
    tree = re.search(r"## Files\n\n```\n(.*?)```", (repo / "README.md").read_text(), re.S)[1]
    modules = {path.name for path in (repo / "_utils").glob("*.py") if path.name != "__init__.py"}
    assert set(re.findall(r"^  (\w+\.py) ", tree, re.M)) == modules
    for name in re.findall(r"^(\S+)", tree, re.M):
        assert (repo / name).exists(), name


def test_no_placeholder_is_left(repo):
    assert not re.search(r"@\w+@", (repo / "README.md").read_text())
