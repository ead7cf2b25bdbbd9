"""A finetuned model on sentences of one's own: `python -m _utils.predict CHECKPOINT FILE`.

FILE has one sentence a line, for tasks of pairs two with a tab between them. One line comes out for each: the label (STS-B: the
score), the probability of every label, and the text, separated by tabs.
"""
import sys
from pathlib import Path

import datasets

from _utils.errors import PlainError, print_plain_errors
from _utils.glue.submission import format_predictions
from _utils.glue.tasks import TASKS


def read_texts(path, task):
    """Dataset with the task's texts from a file. PlainError naming file and line for one that has not as many texts."""
    try:
        lines = Path(path).read_bytes().decode("utf-8-sig").rstrip("\r\n").split("\n")
    except FileNotFoundError:
        raise PlainError(f"there is no file {path!r}: give one with a sentence (or two with a tab between them) on each line.") from None
    except (UnicodeDecodeError, IsADirectoryError) as error:
        raise PlainError(f"{path!r} is no UTF-8 text ({error}): convert it first.") from None
    rows = [line.removesuffix("\r").split("\t") for line in lines]
    for number, texts in enumerate(rows, 1):
        if len(texts) != len(task.texts) or not all(text.strip() for text in texts):
            wanted = "one sentence" if len(task.texts) == 1 else f"two texts with a tab between them ({' and '.join(task.texts)})"
            raise PlainError(f"{path}, line {number}: {task.title} wants {wanted} on each line, and here are "
                             f"{sum(bool(text.strip()) for text in texts)}.")
    return datasets.Dataset.from_dict({**dict(zip(task.texts, zip(*rows))), "label": [0] * len(rows)})


def main(arguments):
    if len(arguments) != 2:
        raise PlainError("give a checkpoint and a file: python -m _utils.predict checkpoints/glue/NAME.pth FILE")
    import finetune  # it takes seconds, and a wrong command should not
    checkpoint, path = arguments
    model, hf_tokenizer, run = finetune.load_finetuned(checkpoint)
    if run["settings"]["wsc_trick"]:
        raise PlainError(f"{checkpoint!r} was trained with the WSC trick, to find what a pronoun stands for: take one of another task.")
    task = TASKS[run["task"]]
    texts = read_texts(path, task)
    rows = finetune.encode(texts, task, run["settings"]["max_length"], hf_tokenizer)
    predictions = finetune.predict_rows(task, model, rows, run["settings"])
    print("\t".join(["score" if task.is_regression else "label", *(f"P({label})" for label in task.labels), *task.texts]))
    for row, prediction in zip(texts, predictions.tolist()):
        print("\t".join([*_describe(prediction, task), *(row[text] for text in task.texts)]))


def _describe(prediction, task):
    """[score] or [label, probability of each label] as text."""
    if task.is_regression:
        return format_predictions(task, [prediction])
    return [task.labels[prediction.index(max(prediction))], *(f"{probability:.4f}" for probability in prediction)]


if __name__ == "__main__":
    print_plain_errors()
    main(sys.argv[1:])
