"""Predict with a finetuned model: `python -m _utils predict`. Imports finetune.py, which defines the model."""
import sys
from pathlib import Path

import finetune
from _utils.errors import PlainError
from _utils.glue.batches import truncation_notice
from _utils.glue.submission import format_predictions
from _utils.glue.table_files import read_tsv
from _utils.glue.tables import to_dataset
from _utils.glue.tasks import task_of


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
    if Path(file).suffix.lower() in (".csv", ".jsonl", ".json", ".parquet"):
        raise PlainError(f"{file!r} is a table, but this command reads one sentence per line. Set 'test' of the task to it, and run "
                         "python finetune.py with the same settings and do_finetune=False.")
    if not Path(file).is_file():
        raise PlainError(f"File not found: {file!r}. Pass a file with one sentence, or two texts separated by a tab, per line.")
    texts = to_dataset(read_tsv(file, task.texts), dict(zip(task.texts, task.texts)), task, "test", [])
    rows = finetune.encode(texts, task, settings["max_length"], hf_tokenizer)
    if text := truncation_notice(rows, settings["max_length"]):
        print(f"{text}. Finetune with a larger max_length, or shorten the texts.", file=sys.stderr)
    predictions = finetune.predict_rows(task, model, rows, settings)
    if task.is_tagging:
        print_words(texts["text"], predictions, task)
    else:
        print_texts(texts, predictions, task)


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
