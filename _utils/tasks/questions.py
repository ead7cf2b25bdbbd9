"""Question answering as in Google's code (F52-F80)."""
import json
from dataclasses import field
from typing import ClassVar

import numpy as np
import torch
from transformers import AutoModelForQuestionAnswering

from _utils.errors import UserError
from _utils.files import write_text_atomically
from _utils.tasks.answers import Answers, ensemble, find_answers, score_answers
from _utils.tasks.base import Task, kind_of_task
from _utils.tasks.custom_tables import fields_of_all, split_rows
from _utils.tasks.definition import QuestionOptions
from _utils.tasks.heads import head_options
from _utils.tasks.question_files import check_evaluated, read_questions, without_unusable
from _utils.tasks.question_head import QuestionLoss, QuestionPredictor
from _utils.tasks.question_rows import QuestionRows
from _utils.tasks.tables import TaskData


@kind_of_task
class Questions(Task):
    """Questions about texts, whose answers are parts of them; `label` of a row is the list of the true answers.

    questions: their QuestionOptions.
    """
    kind: ClassVar[str] = "questions"
    one_class: ClassVar[bool] = False
    unused: ClassVar[tuple] = ("text", "label", "groups", "positive", "class_weights")
    metric_functions: ClassVar[dict] = dict.fromkeys(("exact", "f1", "best_exact", "best_f1"))
    read_file: ClassVar = staticmethod(read_questions)
    transformers_class: ClassVar = AutoModelForQuestionAnswering

    questions: QuestionOptions = field(kw_only=True)

    # Tables

    @classmethod
    def from_files(cls, definition, tables, reason=""):
        """As `Task.from_files`. Questions whose answer is not found are not used for training (F54)."""
        splits = dict(tables)
        options = QuestionOptions(**{"has_unanswerable": any(splits["train"]["is_impossible"]),
                                     **(definition["questions"] or {})})
        splits["train"], skipped = without_unusable(splits["train"], options, definition["train"])
        task = cls(**fields_of_all(cls, definition, tables), texts=("question", "context"), questions=options, epochs=2)
        if "validation" not in splits:
            splits |= split_rows(splits["train"], task, definition["dev"])
        n_unanswerable = "some" if options.has_unanswerable else "none"
        notices = [f"questions, {n_unanswerable} unanswerable; metrics {', '.join(task.metrics)}", *skipped]
        files = {"validation": definition["dev"], "test": definition["test"]}
        evaluated = sorted(files.keys() & tables.keys(), reverse=True)
        notices += check_evaluated(splits, options, {split: files[split] for split in evaluated})
        return TaskData(task, splits, {}, notices, task if "test" in splits and any(splits["test"]["label"]) else None)

    @classmethod
    def applicable_metrics(cls, labels):
        return [*cls.metric_functions]

    def parse_texts(self, cells):
        raise UserError(f"{self.name!r} answers questions about texts. Set its 'test' to a file in the format of "
                        "SQuAD, and run python finetune.py with do_finetune=False.")

    # Training

    @classmethod
    def default_length(cls, recipe):
        """All positions (F63)."""
        return recipe.encoder.positions

    def settings(self, c):
        return {}

    def encode(self, rows, hf_tokenizer, settings, training=False):
        """QuestionRows of a Dataset."""
        return QuestionRows(rows, hf_tokenizer, settings["max_length"], self.questions)

    def network(self, pretrained, settings):
        encoder = pretrained.encoder()
        return QuestionPredictor(encoder, encoder.config.hidden_size, self.questions, **head_options(settings))

    def loss(self):
        return QuestionLoss(self.questions)

    # Predictions and scores

    def outputs(self, rows, logits):
        """The Answers to each question."""
        return find_answers(rows, logits)

    def average(self, outputs):
        return ensemble(outputs)

    def decide(self, outputs):
        return outputs

    def evaluation(self, outputs, labels):
        """As `Task.evaluation`; the baseline declares all questions unanswerable."""
        scores, text = score_answers(outputs, labels, self.questions), None
        baseline = score_answers([Answers({"": 1.}, np.inf)] * len(labels), labels, self.questions)
        if self.questions.has_unanswerable and scores["best_f1"] - scores["f1"] > 1e-6:
            threshold, f1 = scores["best_f1_threshold"], 100 * scores["best_f1"]
            text = f"with na_threshold={threshold:.4g}, F1 on this set would be {f1:.2f}"
        return {"scores": {metric: scores[metric] for metric in self.metrics},
                "baselines": {metric: baseline[metric] for metric in self.metrics},
                "notices": text, "classes": {}, "confusion": []}

    suffix: ClassVar[str] = ".json"

    def write(self, path, rows, decisions):
        """Write the JSON that the official scripts read, and beside it n_best/ and null_odds/.

        An answer is "" where the null odds exceed the threshold.

        rows, decisions: as for `Task.write`; the latter are Answers.
        """
        texts = ["" if one.null_odds > self.questions.threshold else one.text for one in decisions]
        for folder, values in ("", texts), *zip(Answers._fields, zip(*decisions)):
            answers = json.dumps(dict(zip(rows["id"][:], values)), ensure_ascii=False)
            write_text_atomically(path.parent / folder / path.name, answers)

    def check_predictable(self, checkpoint):
        raise UserError(f"{checkpoint!r} answers questions, which needs files of another format. Set 'test' of a "
                        "custom task, and run python finetune.py with do_finetune=False.")

    # transformers

    @property
    def output_names(self):
        return ["start", "end"]

    def why_not_exported(self, settings, family):
        is_linear = not (self.questions.joint or self.questions.answerability)
        return None if is_linear else "questions without {'joint': False, 'answerability': False}"

    def is_exact_in_half(self, hidden_size):
        return True

    def exported_config(self, settings):
        """The options of the lines in docs/checkpoints.md; na_threshold: None if all questions have an answer."""
        names = "doc_stride", "max_query_length", "max_answer_length", "beam"
        threshold = self.questions.na_threshold if self.questions.has_unanswerable else None
        return {name: getattr(self.questions, name) for name in names} | {"na_threshold": threshold}

    def head_weights(self, weights):
        joined = lambda name: torch.cat([weights[f"start.{name}"], weights[f"end.{name}"]])
        return {name: joined(name) for name in ("weight", "bias")}

    def set_head(self, network, layer):
        network.qa_outputs = layer
