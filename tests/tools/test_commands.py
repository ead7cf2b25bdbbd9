"""`python -m _utils`: the list of commands, and the arguments of each."""
import pytest

from _utils.__main__ import COMMANDS, Parser, find_command, main
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
    assert f"usage: python -m _utils {name}" in capsys.readouterr().out


def parse(name, line):
    return vars(Parser(find_command(name)).parse_intermixed_args(line.split()))


def test_arguments_have_the_types_of_the_parameters():
    assert parse("minimal_pairs", "a.pth b.pth --untrained pairs --seed 3 --part generator") == {
        "checkpoints": ["a.pth", "b.pth"], "path": "pairs", "part": "generator", "untrained": True, "seed": 3,
        "device": None, "csv": "checkpoints/minimal_pairs.csv"}
    found = parse("replaced_tokens", "a.pth --generator b.pth --text a.txt b.txt --mask_prob .3")
    assert (found["text"], found["mask_prob"], found["max_length"]) == (["a.txt", "b.txt"], .3, None)
