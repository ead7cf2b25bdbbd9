"""Question answering as in Google's code (F52-F80)."""
import json
from dataclasses import field

import numpy as np
import torch
from transformers import AutoModelForQuestionAnswering

from _utils.custom.answers import Answers, ensemble, find_answers, score_answers
from _utils.custom.definition import QuestionOptions, keys_without_effect
from _utils.custom.question_files import check_evaluated, read_questions, without_unusable
from _utils.custom.question_head import QuestionLoss, QuestionPredictor
from _utils.custom.question_rows import QuestionRows
from _utils.custom.splits import split_rows
from _utils.custom.task import CustomTask
from _utils.custom.task_tables import common_fields, task_data
from _utils.errors import UserError
from _utils.files import write_text_atomically
from _utils.tasks.parts import Head, Inputs, Metrics, PredictionFiles
from _utils.tasks.predictor import head_options
from _utils.tasks.task import kind_of_task


class QuestionInputs(Inputs):
    """A question, its text, and as label the list of the true answers."""

    @property
    def text_column(self):
        raise UserError(f"{self.task.name!r} answers questions about texts, which needs files of another format. Set "
                        "its 'test' to a file in the format of SQuAD, and run python finetune.py with "
                        "do_finetune=False.")

    def encode(self, rows, hf_tokenizer, settings, sentence_predictor, training=False):
        """QuestionRows of a Dataset."""
        return QuestionRows(rows, hf_tokenizer, settings.max_length, self.task.questions)


class QuestionTaskHead(Head):
    """The output layers of question_head.py."""
    keys = ()
    output_names = ("start", "end")
    transformers_class = AutoModelForQuestionAnswering

    def network(self, pretrained, settings, sentence_predictor):
        encoder = pretrained.encoder()
        return QuestionPredictor(encoder, encoder.config.hidden_size, self.task.questions, **head_options(settings))

    def loss(self):
        return QuestionLoss(self.task.questions)

    def outputs(self, rows, logits):
        """The Answers to each question."""
        return find_answers(rows, logits)

    def why_not_exported(self, settings, family):
        options = self.task.questions
        is_linear = not (options.joint or options.answerability)
        if family == "longformer":  # that of transformers attends from the question to all tokens
            return "a finetuned longformer model for questions"
        return None if is_linear else "questions without {'joint': False, 'answerability': False}"

    def set_head(self, network, weights):
        for name, value in network.qa_outputs.named_parameters():
            value.data.copy_(torch.cat([weights[f"start.{name}"], weights[f"end.{name}"]]))

    def exported(self, hf_tokenizer, settings):
        """As `Head.exported`, with the options that the code in docs/checkpoints.md reads.

        na_threshold is None if all questions have an answer.
        """
        hf_tokenizer, _ = super().exported(hf_tokenizer, settings)
        options, names = self.task.questions, ("doc_stride", "max_query_length", "max_answer_length")
        threshold = options.na_threshold if options.has_unanswerable else None
        values = {name: getattr(options, name) for name in names}
        return hf_tokenizer, values | {"beam": options.n_starts, "na_threshold": threshold}


class QuestionMetrics(Metrics):
    """Answers, scored as by the official scripts."""
    functions = dict.fromkeys(("exact", "f1", "best_exact", "best_f1"))
    default_metrics = ("exact", "f1")

    def average(self, outputs):
        return ensemble(outputs)

    def decide(self, outputs):
        return outputs

    def evaluate(self, outputs, labels):
        """As `Metrics.evaluate`; the baseline declares all questions unanswerable."""
        options, metrics = self.task.questions, self.task.metrics
        scores, text = score_answers(outputs, labels, options), None
        baseline = score_answers([Answers({"": 1.}, np.inf)] * len(labels), labels, options)
        if options.has_unanswerable and scores["best_f1"] - scores["f1"] > 1e-6:
            threshold, f1 = scores["best_f1_threshold"], 100 * scores["best_f1"]
            text = f"with na_threshold={threshold:.4g} (in another group_name), F1 on this set would be {f1:.2f}"
        return {"scores": {metric: scores[metric] for metric in metrics},
                "baselines": {metric: baseline[metric] for metric in metrics}, "notices": text}


class QuestionFiles(PredictionFiles):
    """The answer to each question, by its id."""

    def write(self, path, rows, decisions):
        """Write the JSON that the official scripts read, and beside it n_best/ and null_odds/.

        An answer is "" where the null odds exceed the threshold.

        rows, decisions: as for `PredictionFiles.write`; the latter are Answers.
        """
        texts = ["" if one.null_odds > self.task.questions.threshold else one.text for one in decisions]
        for folder, values in ("", texts), *zip(Answers._fields, zip(*decisions)):
            answers = json.dumps(dict(zip(rows["id"][:], values)), ensure_ascii=False)
            write_text_atomically(path.parent / folder / path.name, answers)


@kind_of_task
class Questions(CustomTask):
    """Questions about texts, whose answers are parts of them. questions: their QuestionOptions."""
    kind = "questions"
    inputs_class = QuestionInputs
    head_class = QuestionTaskHead
    metrics_class = QuestionMetrics
    files_class = QuestionFiles
    suffix = ".json"

    read_file = staticmethod(read_questions)

    questions: QuestionOptions = field(kw_only=True)

    @classmethod
    def load(cls, definition, tables):
        """As `CustomTask.load`; tables: {split: Dataset of `read_questions`}.

        Questions whose answer is not found are not used for training (F54).
        """
        splits, given = dict(tables), definition["questions"] or {}
        options = QuestionOptions(**{"has_unanswerable": any(splits["train"]["is_impossible"])} | given)
        splits["train"], skipped = without_unusable(splits["train"], options, definition["train"])
        task = cls(**common_fields(cls, definition), texts=("question", "context"), questions=options, epochs=2)
        if "validation" not in splits:
            splits |= split_rows(splits["train"], definition["dev"])
        messages = [*keys_without_effect(definition), *skipped, *check_evaluated(splits, options, definition)]
        is_labelled = "test" in splits and any(splits["test"]["label"])
        labelled = {split: rows for split, rows in splits.items() if split != "test" or is_labelled}
        return task_data(task, splits, labelled, messages, f"has_unanswerable={options.has_unanswerable}")
