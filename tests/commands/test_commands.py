"""`python -m _utils`: the list of commands, and the arguments of each."""
import importlib
import inspect

import pytest

from _utils.__main__ import COMMANDS, main


def test_the_commands_are_listed(capsys):
    main([])
    printed = capsys.readouterr().out
    assert all(f"\n{name} " in printed for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_the_arguments_of_the_function(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert f"usage: python -m _utils {name}" in capsys.readouterr().out
    function = getattr(importlib.import_module(COMMANDS[name].module), name)
    explained = {argument.lstrip("-") for argument, given in COMMANDS[name].arguments.items() if given["help"]}
    assert explained == inspect.signature(function).parameters.keys()
