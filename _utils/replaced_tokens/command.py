"""Compare discriminators on fixed corruptions of a text.

`--make FILE --generator CHECKPOINT --text PATH` corrupts held-out text once, with samples of one generator, and writes it to FILE.
`CHECKPOINT [CHECKPOINT ...] --corrupted FILE` scores discriminators on exactly these inputs. The AUC in a run's metrics.jsonl cannot be
compared with that of another run, because each discriminator is evaluated on the samples of its own generator.
"""
import argparse

from _utils.errors import PlainError
from _utils.replaced_tokens.corrupted_text import check_new, open_corrupted, save_corrupted
from _utils.replaced_tokens.corruption import make_corrupted
from _utils.replaced_tokens.scores import compare

_USAGE = ("Pass --make FILE --generator CHECKPOINT --text PATH to make a file of corrupted text, or CHECKPOINT [CHECKPOINT ...] "
          "--corrupted FILE to compare discriminators on it.")


def main(arguments=None):
    options = _parser().parse_args(arguments)
    if options.make and not (options.checkpoints or options.corrupted) and options.generator and options.text:
        check_new(options.make)
        text = make_corrupted(options.generator, options.text, "all" if options.all else "held_out", options.rows, options.mask_prob,
                              options.seed, max_length=options.max_length, data_seed=options.data_seed)
        save_corrupted(text, options.make)
        print(f"{options.make}: {text.describe()}")
    elif options.corrupted and options.checkpoints and not (options.make or options.generator or options.text):
        text = open_corrupted(options.corrupted)
        table = compare(text, options.checkpoints)
        print(f"{options.corrupted}: {text.describe()}", "AUC and differences with (standard error)", "",
              table.to_string(float_format=lambda x: f"{x:.4f}", na_rep="-"), sep="\n")
    else:
        raise PlainError(_USAGE)


def _parser():
    parser = argparse.ArgumentParser(prog="python -m _utils.replaced_tokens", description=__doc__.split("\n")[0])
    parser.add_argument("checkpoints", metavar="CHECKPOINT", nargs="*", help="discriminators to compare, the first one with the others: "
                        "checkpoints of pretrain.py, transformers folders or hub ids")
    parser.add_argument("--corrupted", metavar="FILE", help="the corrupted text, from --make")
    parser.add_argument("--make", metavar="FILE", help="make a file of corrupted text")
    parser.add_argument("--generator", metavar="CHECKPOINT", help="the masked language model that replaces tokens")
    parser.add_argument("--text", metavar="PATH", nargs="+", help="corpora by name or path, as datas of pretrain.py")
    parser.add_argument("--all", action="store_true", help="use the whole text instead of the part that pretrain.py holds out, for text "
                        "that no discriminator was trained on")
    parser.add_argument("--rows", type=int, metavar="N", help="number of examples, evenly spread; default: up to 1,024")
    parser.add_argument("--max_length", type=int, metavar="N", help="tokens of an example; default: as the generator was trained, or 128")
    parser.add_argument("--data_seed", type=int, metavar="N", help="random seed of the examples; default: that of the generator's run")
    parser.add_argument("--mask_prob", type=float, metavar="P", default=.15, help="fraction of the tokens that are masked; default: .15")
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="random seed of masks and samples; default: 0")
    return parser
