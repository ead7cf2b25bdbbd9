"""The help of each command of `python -m _utils`."""
import pytest

from _utils.__main__ import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_every_argument(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert f"usage: python -m _utils {name}" in capsys.readouterr().out
