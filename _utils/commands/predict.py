"""Predict with a finetuned model: `python -m _utils predict`. Imports finetune.py, which defines the model."""
from pathlib import Path

import datasets

import finetune
from _utils.errors import PlainError
from _utils.glue.submission import format_predictions
from _utils.glue.tasks import task_of
from _utils.runs.files import read_text


def predict(
    checkpoint,  # a finetuned checkpoint, such as checkpoints/glue/quickstart_cola_0.pth
    file,        # one sentence per line; for tasks with two texts, two separated by a tab
):
    """Predict the labels of sentences with a finetuned model.

    The output has a tab-separated line for each line of FILE: the label (for regression the score), the probability of every label, and
    the text. For a task that labels words, the sentences have spaces between words, and the output has a line for each word (word, label,
    probability) and an empty line after each sentence.
    """
    model, hf_tokenizer, run = finetune.load_finetuned(checkpoint)
    settings, task = run["settings"], task_of(run)
    if settings["wsc_trick"]:
        raise PlainError(f"{checkpoint!r} was trained with the WSC trick, which resolves pronouns. Choose a checkpoint of another task.")
    texts = read_texts(file, task)
    rows = finetune.encode(texts, task, settings["max_length"], hf_tokenizer)
    predictions = finetune.predict_rows(task, model, rows, settings)
    if task.is_tagging:
        print_words(texts["text"], predictions, task)
    else:
        print_texts(texts, predictions, task)


def read_texts(path, task):
    """A Dataset of the task's texts from a file; PlainError with file and line for a wrong number of texts, and for a table."""
    if Path(path).suffix.lower() in (".csv", ".jsonl", ".json", ".parquet"):
        raise PlainError(f"{path!r} is a table, but this command reads one sentence per line. Set 'test' of the task to it, and run "
                         "python finetune.py with the same settings and do_finetune=False.")
    if not Path(path).is_file():
        raise PlainError(f"File not found: {path!r}. Pass a file with one sentence, or two texts separated by a tab, per line.")
    rows = []
    for number, line in enumerate(read_text(path, "Convert it to UTF-8.").rstrip("\r\n").split("\n"), 1):
        texts = line.removesuffix("\r").split("\t")
        if len(texts) != len(task.texts) or not all(text.strip() for text in texts):
            expected = "one sentence" if len(task.texts) == 1 else f"two texts separated by a tab ({' and '.join(task.texts)})"
            raise PlainError(f"{path}, line {number}: {task.title} requires {expected} per line, found "
                             f"{sum(bool(text.strip()) for text in texts)}.")
        rows.append([text.split() if task.is_tagging else text for text in texts])
    labels = [[0] * len(texts[0]) if task.is_tagging else 0 for texts in rows]
    return datasets.Dataset.from_dict({**dict(zip(task.texts, zip(*rows))), "label": labels})


def print_words(sentences, predictions, task):
    """Print a line for each word: the word, its label and the label's probability. predictions: of all words, (N, C)."""
    found = zip(*(values.tolist() for values in predictions.max(-1)))
    for words in sentences:
        for word, (probability, label) in zip(words, found):
            print(f"{word}\t{task.labels[label]}\t{probability:.4f}")
        print()


def print_texts(texts, predictions, task):
    """Print a line for each row of texts: the score, or the label and the probability of each label, and the texts."""
    print("\t".join(["score" if task.is_regression else "label", *(f"P({label})" for label in task.labels), *task.texts]))
    for row, prediction in zip(texts, predictions.tolist()):
        found = format_predictions(task, [prediction]) if task.is_regression else [
            task.labels[prediction.index(max(prediction))], *(f"{probability:.4f}" for probability in prediction)]
        print("\t".join([*found, *(row[text] for text in task.texts)]))
