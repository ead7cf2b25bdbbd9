"""The commands of this project. Each explains its arguments with --help."""
import argparse
import ast
import importlib
import inspect
import os
import runpy
import sys
from pathlib import Path
from typing import Literal, get_args

from fastcore.docments import docments

from _utils.errors import UserError, print_user_errors

SCRIPTS = {
    "pretrain": "pretrain: key=value ..., as python pretrain.py",
    "finetune": "finetune: key=value ..., as python finetune.py",
}
COMMANDS = {
    "export_hf": "export a checkpoint to folders for transformers",
    "convert_tf": "convert a checkpoint of Google's code to a folder for transformers",
    "score": "score texts with a pretrained network, to rank or filter them",
    "predict": "predict the labels of sentences with a finetuned checkpoint",
    "glue_results": "tables and plots of finished finetuning runs",
    "glue_submission": "check a submission for the GLUE server, and zip a folder of one",
    "compare_pretraining": "compare pretrained models by their finetuning scores and the compute of their pretraining",
    "minimal_pairs": "score minimal pairs of sentences, such as BLiMP's, or plain sentences",
    "replaced_tokens": "compare discriminators on the same corrupted text",
    "export_notebooks": "export the notebooks to pretrain.py and finetune.py",
}


# in benchmarks/, because they import the scripts
MEASUREMENTS = ("compare_pretraining", "minimal_pairs", "replaced_tokens")


def module_of(name):
    """The module of a command, which has a function of the same name. Raises UserError for an unknown command."""
    if name not in COMMANDS:
        raise UserError(f"Unknown command: {name!r}. Choose one of {', '.join([*SCRIPTS, *COMMANDS])}.")
    folder = "benchmarks" if name in MEASUREMENTS else "_utils.commands"
    return f"{folder}.{'glue' if name.startswith('glue_') else name}"


def declaration(name):
    """The function of a command with its signature, docstring and comments, but without what its module imports, which
    takes seconds. Its annotations and defaults therefore are builtins, Literal, and literals.
    """
    path = Path(__file__).parents[1] / f"{module_of(name).replace('.', '/')}.py"
    module, namespace = ast.parse(path.read_text(encoding="utf-8")), {"Literal": Literal}
    module.body = [statement for statement in module.body if getattr(statement, "name", None) == name]
    exec(compile(module, path, "exec"), namespace)
    return namespace[name]


def find_command(name):
    """The function of a command, to be called."""
    return getattr(importlib.import_module(module_of(name)), name)


class Parser(argparse.ArgumentParser):
    """The parser of the arguments of a command, which are the parameters of its `declaration`. Raises UserError for
    wrong arguments.

    Keyword-only parameters are options. The comment beside a parameter is its help, with %(default)s for the default;
    the annotation is a type, a Literal, or `list` for several values. The default False makes a flag.
    """

    def __init__(self, name):
        command = declaration(name)
        super().__init__(prog=f"{program()} {name}", description=inspect.getdoc(command),
                         formatter_class=argparse.RawDescriptionHelpFormatter)
        for key, parameter in docments(command, full=True, returns=False).items():
            kind, default = parameter.anno, parameter.default
            is_option, is_required = (
                parameter.kind is inspect.Parameter.KEYWORD_ONLY,
                default is inspect.Parameter.empty,
            )
            if kind is bool:
                self.add_argument(f"--{key}", action="store_true", help=parameter.docment)
                continue
            nargs = ("+" if is_required else "*") if kind is list else None if is_option or is_required else "?"
            named = {"required": is_required} if is_option else {"metavar": key.upper()}
            self.add_argument(
                f"--{key}" if is_option else key,
                help=parameter.docment,
                default=default,
                nargs=nargs,
                type=kind if kind in (int, float) else str,
                choices=get_args(kind) or None,
                **named,
            )

    def error(self, message):
        raise UserError(f"{self.prog}: {message}. Pass --help to list the arguments.")


def program():
    """How the commands were called: as the installed program, or as a module."""
    installed = "electra-replication"  # as in pyproject.toml
    return installed if Path(sys.argv[0]).stem == installed else "python -m _utils"


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(
            __doc__,
            *(f"{name:20} {what}" for name, what in (SCRIPTS | COMMANDS).items()),
            "",
            f"{program()} NAME --help explains a command.",
            sep="\n",
        )
        return
    name, *arguments = arguments
    if name in SCRIPTS:
        sys.argv[:] = [name, *arguments]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    given = vars(Parser(name).parse_intermixed_args(arguments))
    find_command(name)(**given)


def run():
    """Run the command in sys.argv."""
    print_user_errors()
    try:
        main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # as in `python -m _utils predict ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes again at its end


if __name__ == "__main__":
    run()
