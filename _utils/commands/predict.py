"""Predict with a finetuned model: `python -m _utils predict CHECKPOINT FILE`.

FILE contains one sentence per line; for tasks with two texts, two separated by a tab. The output has one tab-separated line for each:
the label (for regression the score), the probability of every label, and the text. For a task that labels words, the sentences have
spaces between words, and the output has a line for each word (word, label, probability) and an empty line after each sentence. This
command imports finetune.py, which defines the model.
"""
from pathlib import Path

import datasets

import finetune
from _utils.errors import PlainError
from _utils.glue.submission import format_predictions
from _utils.glue.tasks import task_of


def read_texts(path, task):
    """A Dataset of the task's texts from a file; PlainError with file and line for a wrong number of texts, and for a table."""
    if Path(path).suffix.lower() in (".csv", ".jsonl", ".json", ".parquet"):
        raise PlainError(f"{path!r} is a table, but this command reads one sentence per line. Set 'test' of the task to it, and run "
                         "python finetune.py with the same settings and do_finetune=False.")
    try:
        lines = Path(path).read_bytes().decode("utf-8-sig").rstrip("\r\n").split("\n")
    except FileNotFoundError:
        raise PlainError(f"File not found: {path!r}. Pass a file with one sentence, or two texts separated by a tab, per line.") from None
    except (UnicodeDecodeError, IsADirectoryError) as error:
        raise PlainError(f"{path!r} is not a UTF-8 text file ({error}). Convert it to UTF-8.") from None
    columns = {name: [] for name in task.texts}
    for number, line in enumerate(lines, 1):
        if not line.strip() and len(lines) > 1:
            raise PlainError(f"{path}, line {number} is empty. Remove it: every line needs a prediction.")
        texts = line.removesuffix("\r").split("\t")
        if len(texts) != len(columns) or not all(text.strip() for text in texts):
            expected = "one sentence" if len(columns) == 1 else f"two texts separated by a tab ({' and '.join(columns)})"
            raise PlainError(f"{path}, line {number}: {task.title} requires {expected} per line, found "
                             f"{sum(bool(text.strip()) for text in texts)}.")
        for name, text in zip(columns, texts):
            columns[name].append(text.split() if task.is_tagging else text)
    labels = [[0] * len(words) for words in columns[task.texts[0]]] if task.is_tagging else [0] * len(lines)
    return datasets.Dataset.from_dict({**columns, "label": labels})


def main(arguments):
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return
    if len(arguments) != 2:
        raise PlainError("Pass a checkpoint and a file: python -m _utils predict checkpoints/glue/NAME.pth FILE")
    checkpoint, path = arguments
    model, hf_tokenizer, run = finetune.load_finetuned(checkpoint)
    if run["settings"]["wsc_trick"]:
        raise PlainError(f"{checkpoint!r} was trained with the WSC trick, which resolves pronouns. Choose a checkpoint of another task.")
    task = task_of(run)
    texts = read_texts(path, task)
    rows = finetune.encode(texts, task, run["settings"]["max_length"], hf_tokenizer)
    predictions = finetune.predict_rows(task, model, rows, run["settings"])
    if task.is_tagging:
        print_words(texts["text"], predictions, task)
        return
    print("\t".join(["score" if task.is_regression else "label", *(f"P({label})" for label in task.labels), *task.texts]))
    for row, prediction in zip(texts, predictions.tolist()):
        print("\t".join([*_format(prediction, task), *(row[text] for text in task.texts)]))


def print_words(sentences, predictions, task):
    """Print a line for each word: the word, its label and the label's probability. predictions: of all words, (N, C)."""
    probabilities, labels = predictions.max(-1)
    found = zip(labels.tolist(), probabilities.tolist())
    for words in sentences:
        for word in words:
            label, probability = next(found)
            print(f"{word}\t{task.labels[label]}\t{probability:.4f}")
        print()


def _format(prediction, task):
    """[score], or [label, probability of each label], as strings."""
    if task.is_regression:
        return format_predictions(task, [prediction])
    return [task.labels[prediction.index(max(prediction))], *(f"{probability:.4f}" for probability in prediction)]
