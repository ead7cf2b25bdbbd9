"""The commands of this project: `python -m _utils` lists them, `python -m _utils NAME ...` runs one."""
import importlib
import sys

from _utils.errors import PlainError, print_plain_errors

COMMANDS = {
    "export_hf": "export a checkpoint to folders for transformers",
    "convert_tf": "convert a checkpoint of Google's code to a folder for transformers",
    "predict": "predict the labels of sentences with a finetuned checkpoint",
    "glue_results": "tables and plots of finished finetuning runs",
    "glue_submission": "check a submission for the GLUE server, and zip a folder of one",
    "compare_pretraining": "compare pretrained models by their finetuning scores and the compute of their pretraining",
    "minimal_pairs": "score minimal pairs of sentences, such as BLiMP's",
    "replaced_tokens": "compare discriminators on the same corrupted text",
    "export_notebooks": "export the notebooks to pretrain.py and finetune.py",
}


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__, *(f"{name:20} {what}" for name, what in COMMANDS.items()), "", "python -m _utils NAME --help explains a command.",
              sep="\n")
        return
    name, *rest = arguments
    if name not in COMMANDS:
        raise PlainError(f"Unknown command: {name!r}. Choose one of {', '.join(COMMANDS)}.")
    importlib.import_module(f"_utils.commands.{name}").main(rest)


if __name__ == "__main__":
    print_plain_errors()
    main(sys.argv[1:])
