"""The commands of this project. Each explains its arguments with --help."""
import argparse
import importlib
import runpy
import sys
from pathlib import Path
from typing import NamedTuple

from _utils.errors import UserError, print_user_errors

SCRIPTS = {
    "pretrain": "pretrain: key=value ..., as python pretrain.py",
    "finetune": "finetune: key=value ..., as python finetune.py",
}
_NETWORK = dict(choices=["generator", "discriminator"])
_DEVICE = dict(help="default: the first GPU, else the CPU")


class Command(NamedTuple):
    """A command, run by the function of its name in a module, which is imported only then: that takes seconds.

    title: for the list of commands.   help: more, for its own page.   arguments: {name: those of `add_argument`}.
    """
    module: str
    title: str
    help: str
    arguments: dict


COMMANDS = {
    "export_hf": Command(
        "_utils.commands.export_hf",
        "export a checkpoint to folders for transformers",
        "The checkpoint is one of pretrain.py, finetune.py or electra_pytorch. The folders have a model card for the "
        "hub.",
        {
            "ckpt": dict(help="a file, or a name in checkpoints/pretrain/ or checkpoints/glue/"),
            "out_dir": dict(help="a new or empty folder"),
            "--vocab": dict(help="the vocab.txt of the training, for checkpoints of electra_pytorch"),
            "--half": dict(action="store_true", help="write 16-bit floats, half the size"),
            "--license": dict(help="for the model card, as the hub names it, such as apache-2.0"),
            "--language": dict(help="for the model card, a code such as de; default: en, where the text is known to be "
                                    "English"),
        },
    ),
    "convert_tf": Command(
        "_utils.commands.convert_tf",
        "convert a checkpoint of Google's code to a folder for transformers",
        "Sizes follow from the shapes, with attention heads of size 64 as in all models that Google released. For "
        "others pass --hparams. To continue pretraining, convert both parts to PAIR/generator and PAIR/discriminator "
        "and run python pretrain.py initial_weights=PAIR ... Adam's moments, which checkpoints of a training have and "
        "Google's released ones lack, are converted with the weights.",
        {
            "ckpt_prefix": dict(help="name of the checkpoint without its extension, such as "
                                     "electra_small/electra_small"),
            "out_dir": dict(help="a new or empty folder"),
            "--part": dict(_NETWORK, required=True, help="the network to convert"),
            "--hparams": dict(help="the hparams of run_pretraining.py, JSON or a file with it, for example "
                                   '\'{"model_size": "small", "model_hparam_overrides": {"num_attention_heads": 8}}\'; '
                                   "default: attention heads of size 64"),
            "--vocab": dict(help="a vocab.txt for the tokenizer; default: that next to the checkpoint"),
        },
    ),
    "score": Command(
        "_utils.commands.score",
        "score texts with a pretrained network, to rank or filter them",
        "Higher is better. The output has a header, and a tab-separated line for each text, in the order of FILE: its "
        "score, the number of its tokens, with --group the group and the rank in it, with --tokens a JSON list of "
        "[token, score], and the text, in which tabs and line breaks become spaces. The score is the sum over the "
        "tokens; special tokens do not count. What the score of a token is depends on the network and is printed to "
        "standard error. A text that is longer than the network's inputs is divided.",
        {
            "checkpoint": dict(help="a checkpoint of pretrain.py, a transformers folder or a hub id, with the head of "
                                    "the pretraining"),
            "file": dict(help="one text per line, or a table (.csv, .tsv, .jsonl, .parquet); -: one text per line of "
                              "standard input"),
            "--text": dict(default="text", help="column of a table with the texts; default: %(default)s"),
            "--group": dict(help="column of a table: texts with the same value are ranked, the best first"),
            "--tokens": dict(action="store_true", help="also write the score of every token"),
            "--part": dict(_NETWORK, help="network to score with; default: the discriminator if there is one"),
            "--device": _DEVICE,
        },
    ),
    "predict": Command(
        "_utils.commands.predict",
        "predict the labels of sentences with a finetuned checkpoint",
        "The output has a header, and a tab-separated line for each line of FILE: the label (for regression the "
        "score), the probability of every label, and the text, in which tabs and line breaks become spaces. For a task "
        "that labels words, the sentences have spaces between words, and the output has no header, a line for each "
        "word (word, label, probability) and an empty line after each sentence; for character spans, a JSON list of "
        "the spans and the text. An empty line of FILE has an empty line in the output. A CSV, TSV, JSON lines or "
        "parquet file needs the columns of the texts that the training file has, and should have that of 'sentence'.",
        {
            "checkpoint": dict(help="a finetuned checkpoint: its path, or its name in checkpoints/glue, such as "
                                    "quickstart_cola_0.pth"),
            "file": dict(help="one text per line, or several with tabs between them; a table (.csv, .tsv, .jsonl, "
                              ".parquet); -: standard input"),
        },
    ),
    "glue_results": Command(
        "_utils.commands.glue",
        "tables and plots of finished finetuning runs",
        "Groups of runs are compared on the tasks of GLUE. Named groups that have none in common are an error.",
        {"groups": dict(nargs="*", help="groups of runs; default: all of them")},
    ),
    "glue_submission": Command(
        "_utils.commands.glue",
        "check a submission for the GLUE server, and zip a folder of one",
        "",
        {
            "zip_or_folder": dict(help="a submission; a folder of one is zipped"),
            "glue_dir": dict(nargs="?", help="tables that determine the numbers of rows, instead of the official "
                                             "numbers"),
        },
    ),
    "compare_pretraining": Command(
        "benchmarks.compare_pretraining",
        "compare pretrained models by their finetuning scores and the compute of their pretraining",
        "Of each run, all checkpoints count whose finetuning group has its default name (RUN_25.0%, ...) and finished "
        "runs of all tasks. The score of a checkpoint is the mean over the tasks of the mean over finetuning seeds; "
        "settings of finetuning and numbers of runs that differ are printed. The unit of the comparison is the "
        "pretraining seed: errors are computed from the scores of different seeds only.",
        {
            "systems": dict(nargs="+", help="base_run_names, each pretrained with one seed or several"),
            "--tasks": dict(help="names of tasks, such as cola,stsb; default: all that these checkpoints have in "
                                 "common"),
            "--baseline": dict(help="a run to show as a dotted line, for example untrained_11081"),
            "--plot": dict(default="checkpoints/glue/compare_pretraining.png",
                           help="scores against compute; default: %(default)s"),
        },
    ),
    "minimal_pairs": Command(
        "benchmarks.minimal_pairs",
        "score minimal pairs of sentences, such as BLiMP's, or plain sentences",
        "",
        {
            "checkpoints": dict(nargs="+", help="checkpoints of pretrain.py, transformers folders or hub ids, with the "
                                                "head of the pretraining"),
            "path": dict(help="a folder of .jsonl files with pairs, as BLiMP's, or one file; or a .txt file with a "
                              "sentence on each line"),
            "--part": dict(_NETWORK, help="network to score; default: the discriminator if there is one"),
            "--untrained": dict(action="store_true", help="also score each architecture with random weights"),
            "--seed": dict(type=int, default=0, help="random seed of --untrained; default: %(default)s"),
            "--device": _DEVICE,
            "--csv": dict(default="checkpoints/minimal_pairs.csv",
                          help="accuracy by paradigm, and in ..._scores.csv the scores of all sentences; default: "
                               "%(default)s"),
        },
    ),
    "replaced_tokens": Command(
        "benchmarks.replaced_tokens",
        "compare discriminators on the same text, in which one generator replaced tokens",
        "The same command gives the same text.",
        {
            "checkpoints": dict(nargs="+", help="discriminators, the first one with the others: checkpoints, "
                                                "transformers folders or hub ids"),
            "--generator": dict(required=True, help="the masked language model that replaces tokens"),
            "--text": dict(required=True, nargs="+", help="corpora by name or path, as datas of pretrain.py"),
            "--all": dict(action="store_true", help="use the whole text instead of the part that pretrain.py holds "
                                                    "out, if no discriminator was trained on it"),
            "--rows": dict(type=int, help="number of examples, evenly spread; default: up to 1,024"),
            "--max_length": dict(type=int, help="tokens of an example; default: as in the generator's run, or a "
                                                   "checkpoint's, or 128, or the generator's length if it is shorter"),
            "--data_seed": dict(type=int, help="random seed of the examples; default: that of the same "
                                                  "run, or 11081"),
            "--mask_prob": dict(type=float, default=.15, help="fraction of the tokens that are masked; default: "
                                                              "%(default)s"),
            "--seed": dict(type=int, default=0, help="random seed of masks and samples; default: %(default)s"),
        },
    ),
    "export_notebooks": Command(
        "_utils.commands.export_notebooks",
        "export the notebooks to pretrain.py and finetune.py",
        "Cells tagged active-ipynb, code and text, only explore and are left out of the scripts. A script that changes "
        "is kept in the folder .exported.",
        {
            "--check": dict(action="store_true", help="write no script, and fail if one differs from its notebook"),
            "--execute": dict(action="store_true", help="run the notebooks first and save their outputs"),
        },
    ),
}


class Parser(argparse.ArgumentParser):
    """The parser of a command's arguments, which raises UserError for wrong ones."""

    def __init__(self, name):
        _, title, more, arguments = COMMANDS[name]
        super().__init__(prog=f"{program()} {name}", description=f"{title[0].upper()}{title[1:]}. {more}")
        for argument, settings in arguments.items():
            shown = {} if argument.startswith("-") else {"metavar": argument.upper()}
            self.add_argument(argument, **shown, **settings)

    def error(self, message):
        raise UserError(f"{self.prog}: {message}. Pass --help to list the arguments.")


def program():
    """How the commands were called: as the installed program, or as a module."""
    installed = "electra-replication"  # as in pyproject.toml
    return installed if Path(sys.argv[0]).stem == installed else "python -m _utils"


def print_commands():
    titles = SCRIPTS | {name: command.title for name, command in COMMANDS.items()}
    print(__doc__)
    for name, title in titles.items():
        print(f"{name:20} {title}")
    print(f"\n{program()} NAME --help explains a command.")


def main(arguments):
    """Run a command. arguments: its name and those that follow it."""
    if not arguments or arguments[0] in ("-h", "--help"):
        return print_commands()
    name, *arguments = arguments
    if name in SCRIPTS:
        sys.argv[:] = [name, *arguments]
        return runpy.run_module(name, run_name="__main__", alter_sys=True)
    if name not in COMMANDS:
        raise UserError(f"Unknown command: {name!r}. Choose one of {', '.join([*SCRIPTS, *COMMANDS])}.")
    given = Parser(name).parse_intermixed_args(arguments)
    function = getattr(importlib.import_module(COMMANDS[name].module), name)
    function(**vars(given))


def run():
    """Run the command in sys.argv."""
    print_user_errors()
    main(sys.argv[1:])


if __name__ == "__main__":
    run()
