"""`python -m _utils`: the list of commands, and the help of each."""
import re

import pytest

from _utils.__main__ import COMMANDS, main
from _utils.errors import UserError


def test_the_commands_are_listed(capsys):
    main([])
    printed = capsys.readouterr().out
    assert all(f"\n{name} " in printed for name in COMMANDS)
    with pytest.raises(UserError, match="'export'"):
        main(["export"])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_every_argument(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    usage, arguments = re.split(r"(?:positional arguments|options):\n", capsys.readouterr().out, maxsplit=1)
    assert usage.startswith(f"usage: python -m _utils {name}")
    explained = re.findall(r"^  (\S+)(.*(?:\n {4,}.*)*)", arguments, re.M)
    assert explained and all(re.search(r"(  |\n) *\w", rest) for _, rest in explained), arguments
