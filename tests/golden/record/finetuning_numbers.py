"""Records lengths of truncated pairs, numbers of steps, and scores of fixed predictions (F41, F46, F47)."""
import tempfile

import configure_finetuning
from finetune.classification import classification_metrics, classification_tasks
from model import tokenization
from recording import stored, vocab_file, write

from finetune import preprocessing

SCORERS = {
    "AccuracyScorer": ("label_ids", "y", "p", .5),
    "MCCScorer": ("label_ids", "y", "p", .5),
    "F1Scorer(unused)": ("label_ids", "y", "p", .5),
    "RegressionScorer": ("targets", "yt", "pr", .1),
}


def record():
    values = stored("finetuning_numbers.json")
    yield "finetuning_numbers.json", {
        "truncate_pair_lengths": [truncated(a, b) for a, b, _, _ in values["truncate_pair_lengths"]],
        "train_steps": [{"steps": n_steps(case)} for case in values["train_steps"]],
        "scorers": {"results": {name: scores(name, values["scorers"]) for name in SCORERS}},
    }


def truncated(a, b):
    tokens_a, tokens_b = list(range(a)), list(range(b))
    classification_tasks._truncate_seq_pair(tokens_a, tokens_b, 32 - 3)
    return [a, b, len(tokens_a), len(tokens_b)]


def n_steps(case):
    """The steps for a number of rows, which are written to a TFRecord file and filled up (F46)."""
    special = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5}
    config = configure_finetuning.FinetuningConfig(
        "record", tempfile.mkdtemp(), task_names=["cola"], train_batch_size=case["batch"],
        num_train_epochs=case["epochs"], max_seq_length=8, vocab_size=6)
    task = classification_tasks.CoLA(config, tokenization.FullTokenizer(vocab_file(special, 6), do_lower_case=True))
    task.get_examples = lambda split: [
        classification_tasks.InputExample(i, "cola", "a", None, "0") for i in range(case["n"])]
    return preprocessing.Preprocessor(config, [task]).prepare_train()[1]


def scores(name, values):
    labels, true, predicted, loss = SCORERS[name]
    scorer = getattr(classification_metrics, name.replace("(unused)", ""))()
    for label, prediction in zip(values[true], values[predicted]):
        scorer.update({labels: label, "predictions": prediction, "loss": loss})
    return [list(pair) for pair in scorer.get_results()]


if __name__ == "__main__":
    write(record)
