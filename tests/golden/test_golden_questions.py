"""Question answering against recorded values of Google's code: features, module, losses, answers and metrics (F52-F80).
"""
import numpy as np
import pytest
import torch
from finetuning_steps import encoder_parameters, learner_of, micro_encoder, train_step
from recorded import recorded

from _utils.commands.convert_tf import google_name
from _utils.custom.answers import (
    best_threshold,
    final_text,
    find_answers,
    normalize,
    score_answers,
    score_text,
    word_splitter,
)
from _utils.custom.question_files import read_questions
from _utils.custom.question_head import QuestionHead, QuestionLoss, QuestionPredictor, candidates
from _utils.custom.question_rows import QuestionRows
from _utils.custom.questions import QuestionOptions, Questions
from _utils.tasks.rows import EncodedRows, Window
from _utils.tasks.settings import Settings
from _utils.text.vocabulary import from_vocab_file, tokenizer_from_tokens

NUMBERS, ARRAYS = recorded("official/questions.json"), recorded("official/questions.npz")
FILES = {"squad": "examples_v2.json", "squadv1": "examples_v1.json", "newsqa": "examples_mrqa.jsonl"}
# Google's names of the layers of the head, in the order in which it creates them.
LAYERS = {"start": "dense", "end": "dense_1", "end.0": "qa_hidden", "end.2": "dense_1",
          "impossible": "dense_2", "impossible.0": "dense_2", "impossible.2": "dense_3"}


NAMES = {"joint_prediction": "joint", "answerable_classifier": "answerability", "beam_size": "beam",
         "n_best_size": "n_best", "qa_na_threshold": "na_threshold",
         "answerable_uses_start_logits": "answerable_from_start"}


def options_of(config, task="squad", **values):
    """QuestionOptions of Google's configuration."""
    given = {NAMES.get(key, key): value for key, value in config.items() if key != "max_seq_length"}
    return QuestionOptions(**given, **values, has_unanswerable=task == "squad")


@pytest.fixture(scope="module")
def folder(shared):
    return shared / "golden/official/qa"


@pytest.fixture(scope="module")
def tokenizer(shared):
    return from_vocab_file(shared / "data/vocab.txt")


def test_defaults_match_google():
    names = {*NAMES, "doc_stride", "max_query_length", "max_answer_length", "answerable_weight"}
    google = {name: value for name, value in NUMBERS["defaults"].items() if name in names}
    assert len(google) == 10 and options_of(google, "squadv1") == QuestionOptions()


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("setting", ["squad|L64_s32_q16", "squad|L128_s32_q64", "squad|L512_s128_q64",
                                     "squadv1|L64_s32_q16", "squadv1|L128_s32_q64", "newsqa|L64_s32_q16"])
def test_features_match_google(folder, tokenizer, setting, split):
    task, config = setting.split("|")
    expected = recorded(folder / "features.json")[f"{setting}|{split}"]
    questions = read_questions(folder / FILES[task])
    if split == "train":
        questions = questions.filter(lambda row: row["first_word"] >= 0 or row["is_impossible"])
        assert [[row["id"], row["first_word"], row["last_word"]] for row in questions] == [
            [example["qid" if task == "newsqa" else "qas_id"], example["start_position"], example["end_position"]]
            for example in expected["examples"]]
    options = options_of(expected["config"], task)
    rows = QuestionRows(questions, tokenizer, expected["config"]["max_seq_length"], options)
    arrays = {name.partition("|")[2]: values for name, values in
              recorded(folder / f"features_{task}_{config}.npz").items() if name.startswith(split)}
    ids, mask, types, is_answer, starts, labels = (tensor.numpy() for tensor in rows.batch(np.arange(len(rows))))
    n = ids.shape[1]
    for name, values in (("input_ids", ids), ("input_mask", mask), ("segment_ids", types), ("answer_mask", is_answer)):
        assert (arrays[name][:, :n] == values).all() and not arrays[name][:, n:].any(), name
    if split == "train":
        names = ("start_positions", "end_positions", "is_impossible")
        assert (labels == np.stack([arrays[name] for name in names], axis=1)).all()
        assert (starts == arrays["start_positions"]).all()


@pytest.fixture(scope="module")
def encoder():
    """The encoder of the recorded checkpoint, without dropout."""
    return micro_encoder().eval()


def head_of(mode, options):
    """The QuestionHead with the recorded weights, and {Google's name: parameter}."""
    head, by_name = QuestionHead(32, options), {}
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            layer, _, kind = name.rpartition(".")
            google = f"{LAYERS[layer]}/{'kernel' if kind == 'weight' else 'bias'}"
            parameter.copy_(torch.from_numpy(ARRAYS[f"heads|{mode['head_values'][google]}"].T.astype(np.float32)))
            by_name[google] = parameter
    assert set(by_name) == set(mode["head_values"])
    return head, by_name


def batch_of(task):
    """(inputs of a QuestionPredictor, labels (B, 3)) of the recorded batch."""
    batch = {name.removeprefix(f"batch_{task}|"): torch.from_numpy(values).long() for name, values in ARRAYS.items()
             if name.startswith("batch_")}
    ids, mask, types = (batch[name] for name in ("input_ids", "input_mask", "segment_ids"))
    is_answer = mask * types > 0
    is_answer[:, 0] = True
    labels = torch.stack([batch[name] for name in ("start_positions", "end_positions", "is_impossible")], dim=1)
    return (ids, mask, types, is_answer, labels[:, 0]), labels


def outputs_of(encoder, head, task):
    """(outputs of the head, labels (B, 3)) for the recorded batch of a task."""
    (ids, mask, types, is_answer, starts), labels = batch_of(task)
    return head(encoder(ids, mask, types).last_hidden_state, is_answer, starts), labels


def close(actual, name, **tolerance):
    np.testing.assert_allclose(actual.detach().numpy(), ARRAYS[name], **{"atol": 1e-4, "rtol": 1e-5, **tolerance})


@pytest.mark.parametrize("name", NUMBERS["modes"])
def test_logits_losses_and_gradients_match_google(encoder, name):
    mode = NUMBERS["modes"][name]
    options = options_of(mode["config"], mode["task"])
    head, parameters = head_of(mode, options)
    outputs, labels = outputs_of(encoder, head, mode["task"])
    for i, output in enumerate(("start_logits", "end_logits")):
        close(outputs[:, i], f"train|{name}|{output}")
    if options.answerability:
        close(outputs[:, 2, 0], f"train|{name}|answerable_logit")
    loss = len(labels) * QuestionLoss(options)(outputs, labels)  # Google sums over the batch (F44)
    assert loss.item() == pytest.approx(mode["loss_sum"], rel=1e-5)
    encoder.zero_grad()
    loss.backward()
    for ours, parameter in encoder.named_parameters():
        parameters[google_name(f"electra.{ours}", "discriminator", [])] = parameter
    for google, norm in mode["gradient_norms"].items():
        assert float(parameters[google].grad.norm()) == pytest.approx(norm, rel=1e-3, abs=2e-6), google


@pytest.mark.parametrize("name", NUMBERS["modes"])
def test_the_norm_that_clips_and_gradients_of_recipe_google_match_google(name):
    mode = NUMBERS["modes"][name]
    options = options_of(mode["config"], mode["task"])
    model = QuestionPredictor(micro_encoder(), 32, options)
    model.classifier, of_head = head_of(mode, options)
    inputs, labels = batch_of(mode["task"])
    task = Questions("mine", "mine", ("question", "context"), questions=options)
    rows = EncodedRows([([Window([1], [0])], 1)] * 30, [0] * 30)
    learn = learner_of(task, model, rows, Settings(recipe="google", epochs=1, bs=1))
    norm, gradients = train_step(learn, inputs, labels, 1)
    assert norm == pytest.approx(mode["clip_norm"], rel=2e-5)
    for google, parameter in (encoder_parameters(model) | of_head).items():
        if expected := mode["gradient_norms"].get(google):
            assert float(gradients[parameter].norm()) == pytest.approx(expected, rel=1e-3, abs=2e-6), google


@pytest.mark.parametrize("beam", [4, 20])
def test_beams_match_google(encoder, beam):
    mode = NUMBERS["modes"]["joint"]
    head, _ = head_of(mode, options_of(mode["config"], beam=beam))
    outputs, _ = outputs_of(encoder, head.eval(), "squad")
    prefix = f"eval_beam{beam}|joint|"
    start_scores, end_scores = (ARRAYS[f"{prefix}{name}_top_log_probs"] for name in ("start", "end"))
    pairs, odds = outputs[:, :-3].detach().unflatten(1, (beam, beam, 3)), outputs[:, -1]
    np.testing.assert_allclose(pairs[..., 2], start_scores[..., None] + end_scores, atol=2e-4)  # some are about -1000
    assert (pairs[..., 0, 0].numpy() == ARRAYS[f"{prefix}start_top_index"]).all()
    # some scores differ by less than 1e-4
    assert (pairs[..., 1].numpy() != ARRAYS[f"{prefix}end_top_index"]).mean() < .02
    close(odds, "train|joint|answerable_logit")


def recorded_candidates(arrays, options):
    """The candidates of recorded logits or beams."""
    scores = {name: torch.from_numpy(values.astype(np.int64 if "index" in name else np.float32))
              for name, values in arrays.items()}
    start, end = (scores[f"{name}_logits"] - 1000 * scores["masked"] for name in ("start", "end"))
    odds = start[:, 0] if options.joint else start[:, 0] + end[:, 0]
    if options.answerability:
        odds = scores["answerable_logit"]
    if options.joint:
        names = ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index")
        return candidates(*(scores[name] for name in names), odds)
    (start_scores, starts), (end_scores, ends) = (
        (values[:, :options.n_best] for values in logits.sort(descending=True, stable=True)) for logits in (start, end))
    return candidates(start_scores, starts, end_scores[:, None], ends[:, None], odds)


@pytest.mark.parametrize("name", ["squad|indep", "squad|joint", "squad|indep_noans", "squad|joint_noans",
                                  "squad|indep_short", "squad|indep_thresh0", "squadv1|indep", "squadv1|joint",
                                  "newsqa|indep", "newsqa|joint"])
def test_answers_and_scores_match_google(folder, tokenizer, name):
    expected = recorded(folder / "postprocess.json")[name]
    task, options = expected["task"], options_of(expected["config"], expected["task"], doc_stride=32)
    questions = read_questions(folder / FILES[task])
    rows = QuestionRows(questions, tokenizer, 128, options)
    arrays = {key.partition("|")[2]: values for key, values in recorded(folder / "postprocess.npz").items()
              if key.startswith(f"{task}|")}
    found = find_answers(rows, recorded_candidates(arrays, options))
    ids = questions["id"][:]
    assert dict(zip(ids, (answers.text for answers in found))) == expected["predictions"]
    for key, answers in zip(ids, found):
        for text, (best, _, _, probability) in zip(answers.n_best, expected.get("nbest", {}).get(key, ())):
            assert text == best and answers.n_best[text] == pytest.approx(probability, abs=1e-6)
        if options.has_unanswerable:
            assert answers.null_odds == pytest.approx(expected["null_odds"][key], abs=1e-5)
    scores, results = score_answers(found, questions["label"][:], options), expected["results"]
    names = {"exact": "exact_match", "f1": "f1"}
    if options.has_unanswerable:
        names = {metric: metric.replace("threshold", "thresh") for metric in scores}
    for metric, name in names.items():
        value = scores[metric] * (1 if "threshold" in metric else 100)
        assert value == pytest.approx(results[name], abs=1e-5), metric


@pytest.mark.parametrize("name", ["joint", "indep", "joint_noans"])
def test_a_model_answers_as_googles(folder, encoder, name):
    """From texts to predictions and metrics, with the recorded checkpoint and its vocabulary."""
    vocab = (folder.parent / "micro_ckpt/vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    expected = recorded(folder / "pipeline.json")[name]
    options = options_of(expected["config"])
    questions = read_questions(folder / FILES["squad"])
    rows = QuestionRows(questions, tokenizer_from_tokens(vocab), 64, options)
    assert len(rows) == expected["n_features"]
    ids, mask, types, is_answer, starts, _ = rows.batch(np.arange(len(rows)))
    head = head_of(NUMBERS["modes"][name], options)[0].eval()
    with torch.no_grad():
        outputs = head(encoder(ids, mask, types).last_hidden_state, is_answer, starts)
    found = find_answers(rows, outputs)
    assert dict(zip(questions["id"], (answers.text for answers in found))) == expected["predictions"]
    odds = dict(zip(questions["id"], (answers.null_odds for answers in found)))
    assert odds == pytest.approx(expected["null_odds"], abs=2e-4)
    scores = score_answers(found, questions["label"][:], options)
    for key in ("exact", "f1", "best_f1"):
        assert 100 * scores[key] == pytest.approx(expected["results"][key], abs=1e-5)


def test_final_texts_match_google(small_tokenizer):
    for key in ("lower", "cased"):
        words = word_splitter(
            small_tokenizer if key == "lower" else tokenizer_from_tokens([*small_tokenizer.get_vocab()], cased=True)
        )
        for case in NUMBERS["get_final_text"]:
            assert final_text(case["pred"], case["orig"], words) == case[key], case


def test_final_texts_keep_the_accents_that_the_vocabulary_has(small_tokenizer):
    words = word_splitter(tokenizer_from_tokens([*small_tokenizer.get_vocab()], cased=False, strip_accents=False))
    assert final_text("köln", "Köln-Düsseldorf", words) == "Köln"


def test_scores_of_texts_match_the_official_scripts():
    for case in NUMBERS["normalize"]:
        assert [normalize(case["text"])] * 3 == [case["v2"], case["v1"], case["mrqa"]]
    for case in NUMBERS["pairs"]:
        assert list(score_text(case["pred"], case["gold"])) == pytest.approx([case["v2_exact"], case["v2_f1"]])
        for script in ("v1", "mrqa"):
            expected = [float(case[f"{script}_{metric}"]) for metric in ("exact", "f1")]
            assert list(score_text(case["pred"], case["gold"], if_empty=0.)) == pytest.approx(expected)


def is_answered(case):
    """Whether every question is answered before the threshold is applied, as it is here (F77)."""
    return case["scores"].keys() == case["has_ans"].keys() and all(
        case["preds"][key] for key, is_answerable in case["has_ans"].items() if not is_answerable)


def test_thresholds_match_the_official_script():
    cases = [*filter(is_answered, NUMBERS["thresholds"])]
    assert len(cases) == 4
    for case in cases:
        odds, scores, is_answerable = (
            np.array([case[name][key] for key in case["scores"]]) for name in ("na_odds", "scores", "has_ans")
        )
        assert best_threshold(scores, odds, is_answerable) == pytest.approx(
            (case["best_score"] / 100, case["best_thresh"]), abs=1e-8
        )
