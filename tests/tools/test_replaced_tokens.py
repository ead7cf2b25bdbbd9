"""The command replaced_tokens: the file of corrupted text, and scores of discriminators on it."""
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, log_loss, precision_score, recall_score, roc_auc_score
from tiny_pretraining import flip_bit
from transformers import BertConfig, BertForMaskedLM, BertForTokenClassification

import pretrain
from _utils.__main__ import main
from _utils.commands.export_hf import export_hf
from _utils.commands.replaced_tokens import auc, compare, make_corrupted, open_corrupted, replaced_scores, save_corrupted
from _utils.config import complete
from _utils.errors import PlainError
from _utils.networks import inputs_of, load_with_head, replaced_logits
from _utils.runs.checkpoints import load_checkpoint, save_pretrained
from _utils.text.vocabulary import tokenizer_from_tokens

TENSORS = ("input_ids", "original_ids", "token_type_ids", "lengths", "is_masked", "is_replaced")


def checkpoint(name, hf_tokenizer, seed, *overrides):
    """Write the checkpoint of an untrained ELECTRA to checkpoints/pretrain/ and return its configuration."""
    c = complete(pretrain.c.override(["size=tiny", "datas=text.txt", "vocab=vocab.txt", "max_length=32", "bs=8", "num_workers=0",
                                      f"seed={seed}", "data_seed=3", *overrides]))
    pretrain.set_seed(seed)
    model = pretrain.build_model(c, hf_tokenizer)
    for weight in model.parameters():  # logits of untrained networks hardly differ
        weight.data *= 2.
    save_pretrained(Path("checkpoints/pretrain", name), model, c, hf_tokenizer, step=0)
    return c


@pytest.fixture
def two_runs(workplace, small_tokenizer):
    """The configuration of a.pth; a.pth and b.pth have different generators and discriminators."""
    checkpoint("b.pth", small_tokenizer, 2)
    return checkpoint("a.pth", small_tokenizer, 1)


def logits_one_by_one(text, name):
    """The discriminator's logits of all tokens, without batches or padding."""
    network = load_with_head(name, "discriminator").network
    logits = []
    with torch.no_grad():
        for ids, segments, length in zip(text.input_ids, text.token_type_ids, text.lengths):
            ids, segments = ids[None, :length].long(), segments[None, :length].long()
            logits.append(replaced_logits(network(**inputs_of(network, ids, torch.ones_like(ids), segments)))[0])
    return torch.cat(logits).numpy()


def error_in(cell):
    """The standard error in a cell such as '0.6448 (0.0076)'."""
    return float(cell.split("(")[1].rstrip(")"))


# Scores

@pytest.fixture
def tokens():
    """(logits, labels, is_masked, block) of 40 blocks. The tokens of a block are correlated, and some logits are equal."""
    rng = np.random.default_rng(0)
    block = np.repeat(np.arange(40), rng.integers(20, 60, 40))
    is_masked = rng.random(len(block)) < .3
    labels = is_masked & (rng.random(len(block)) < .8)
    logits = np.round(rng.normal(size=len(block)) + 1.5 * rng.normal(size=40)[block] + labels - 1, 1)
    return logits, labels, is_masked, block


def test_scores_equal_those_of_sklearn_on_the_concatenated_tokens(tokens):
    logits, labels, is_masked, _ = tokens
    scores = replaced_scores(*tokens)
    assert scores["AUC"].value == pytest.approx(roc_auc_score(labels, logits))
    assert scores["AUC at masks"].value == pytest.approx(roc_auc_score(labels[is_masked], logits[is_masked]))
    expected = {"average precision": average_precision_score(labels, logits), "precision": precision_score(labels, logits > 0),
                "recall": recall_score(labels, logits > 0), "loss": log_loss(labels, 1 / (1 + np.exp(-logits)))}
    assert {name: scores[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("best, value", [(True, 1.), (False, .5)])
def test_a_perfect_discriminator_has_auc_1_and_a_constant_one_a_half(tokens, best, value):
    _, labels, is_masked, block = tokens
    logits = np.where(labels, 3., -3.) if best else np.full(len(labels), -2.)
    scores = replaced_scores(logits, labels, is_masked, block)
    assert str(scores["AUC"]) == str(scores["AUC at masks"]) == f"{value:.4f} (0.0000)"
    assert scores["recall"] == best and scores["precision"] == (1. if best else None)


def test_the_standard_errors_equal_those_of_a_bootstrap_over_blocks(tokens):
    logits, labels, _, block = tokens
    rng = np.random.default_rng(1)
    other = logits + rng.normal(size=len(logits))
    a, b = auc(logits, labels, block), auc(other, labels, block)
    rows, drawn = [np.flatnonzero(block == i) for i in range(40)], []
    for _ in range(400):
        sample = np.concatenate([rows[i] for i in rng.integers(40, size=40)])
        drawn.append([roc_auc_score(labels[sample], x[sample]) for x in (logits, other)])
    drawn = np.array(drawn)
    assert a.error() == pytest.approx(drawn[:, 0].std(), rel=.15)
    assert a.minus(b).error() == pytest.approx((drawn[:, 0] - drawn[:, 1]).std(), rel=.15)
    assert a.minus(b).error() < a.error()


def test_a_single_example_has_no_standard_error(two_runs, capsys):
    text = make_corrupted("a.pth", ["text.txt"], rows=1, mask_prob=.5)
    text = text._replace(is_masked=text.is_replaced)  # no correct sample
    save_corrupted(text, "c.pt")
    main(["replaced_tokens", "a.pth", "--corrupted", "c.pt"])
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("a.pth"))
    assert "(nan)" in line and line.split()[3] == "-"  # AUC at masks


# The file

def test_the_text_is_what_pretraining_holds_out(two_runs):
    text = make_corrupted("a.pth", ["text.txt"])
    _, dls = pretrain.load_data(two_runs)
    held_out = torch.cat([ids for ids, _ in dls.valid])
    assert 10 < len(held_out) and held_out[:, :text.original_ids.shape[1]].equal(text.original_ids.long())
    segments = [[0] * a + [1] * (length - a) + [0] * (text.original_ids.shape[1] - length)
                for a, length in zip(torch.cat([lengths for _, lengths in dls.valid]).tolist(), text.lengths.tolist())]
    assert text.token_type_ids.tolist() == segments and text.lengths.equal((held_out != 0).sum(1).int())
    whole, few = (make_corrupted("a.pth", ["text.txt"], part, rows, max_length=16) for part, rows in (("all", 999), ("held_out", 5)))
    assert (len(whole.lengths), len(few.lengths)) == (999, 5) and few.original_ids.shape[1] <= 16


def test_samples_replace_only_masked_tokens_as_in_pretraining(two_runs):
    text = make_corrupted("a.pth", ["text.txt"], part="all", rows=60, seed=4)
    network, _, hf_tokenizer = load_with_head("a.pth", "generator")
    torch.manual_seed(4)
    originals, attention_mask = text.original_ids.long(), text.is_token()
    masked_ids, _, is_masked = pretrain.mask_tokens(originals, hf_tokenizer.mask_token_id, len(hf_tokenizer), hf_tokenizer.all_special_ids,
                                                    .15, replace_prob=0., orginal_prob=.15)
    with torch.no_grad():
        logits = network(masked_ids, attention_mask=attention_mask, token_type_ids=text.token_type_ids.long()).logits
    samples = pretrain.sample(logits[is_masked])
    assert text.is_masked.equal(is_masked) and text.input_ids[is_masked].equal(samples.int())
    assert text.input_ids[~is_masked].equal(text.original_ids[~is_masked])
    assert text.is_replaced.equal(text.input_ids != text.original_ids)
    assert (text.is_masked & ~text.is_replaced).any()  # correct samples count as original
    assert not (text.is_masked & ~attention_mask).any() and .1 < is_masked.sum() / text.lengths.sum() < .2


def test_the_same_command_writes_the_same_file_with_any_number_of_threads(two_runs):
    n_threads, contents = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.rand(threads)  # the state of the random numbers before has no influence
        main(["replaced_tokens", "--make", f"{threads}.pt", "--generator", "a.pth", "--text", "text.txt"])
        assert torch.get_num_threads() == threads
        contents.append(Path(f"{threads}.pt").read_bytes())
    torch.set_num_threads(n_threads)
    assert contents[0] == contents[1]
    text, other = open_corrupted("1.pt"), make_corrupted("a.pth", ["text.txt"], seed=1)
    assert text.original_ids.equal(other.original_ids) and not text.is_masked.equal(other.is_masked)


def test_the_file_contains_the_text_and_what_made_it(two_runs, small_tokenizer):
    text = make_corrupted("a.pth", ["text.txt"], mask_prob=.3, seed=9)
    save_corrupted(text, "corrupted.pt")
    read, made_by = open_corrupted("corrupted.pt"), text.made_by
    assert all(getattr(read, name).equal(getattr(text, name)) for name in TENSORS) and read.made_by == made_by
    assert read.token_ids() == small_tokenizer.get_vocab()
    assert (made_by["generator"], made_by["part"], made_by["mask_prob"], made_by["seed"]) == ("a.pth", "held_out", .3, 9)
    assert made_by["text"]["datas"] == ["text.txt"] and made_by["text"]["data_seed"] == 3 and "torch" in made_by["versions"]


def test_an_existing_file_is_kept(two_runs):
    Path("mine.pt").write_text("mine")
    with pytest.raises(PlainError, match="'mine.pt' already exists"):
        main(["replaced_tokens", "--make", "mine.pt", "--generator", "a.pth", "--text", "text.txt"])
    with pytest.raises(PlainError, match="'mine.pt' is a file"):
        main(["replaced_tokens", "--make", "mine.pt/c.pt", "--generator", "a.pth", "--text", "text.txt"])
    assert Path("mine.pt").read_text() == "mine" and not Path("datasets").exists()


# Comparing discriminators

def test_discriminators_are_scored_on_the_same_inputs(two_runs):
    text = make_corrupted("a.pth", ["text.txt"])
    table, labels = compare(text, ["a.pth", "b.pth"]), text.is_replaced[text.is_token()].numpy()
    a, b = (logits_one_by_one(text, name) for name in ("a.pth", "b.pth"))
    for name, logits in (("a.pth", a), ("b.pth", b)):
        assert table.loc[name, "AUC"].startswith(f"{roc_auc_score(labels, logits):.4f} (")
        assert table.loc[name, "loss"] == pytest.approx(log_loss(labels, 1 / (1 + np.exp(-logits.astype(float)))), abs=1e-5)
    n = len(text.lengths)
    blocks = np.repeat(np.arange(n) * 16 // n, text.lengths)
    assert n >= 16 and error_in(table.loc["a.pth", "AUC"]) == pytest.approx(auc(a, labels, blocks).error(), abs=1e-3)
    assert table.loc["b.pth", "AUC difference"].startswith(f"{roc_auc_score(labels, b) - roc_auc_score(labels, a):.4f} (")
    share = labels.mean()
    assert table.loc["constant prediction", "loss"] == pytest.approx(log_loss(labels, np.full(len(labels), share)))
    assert table.loc["constant prediction", ["AUC", "average precision"]].tolist() == ["0.5000", pytest.approx(share)]


def test_the_command_prints_one_table(two_runs, scripts, tmp_path):
    made = scripts.run("_utils replaced_tokens", ["--make", "c.pt", "--generator", "b.pth", "--text", "text.txt", "--rows", "9"], tmp_path)
    assert made.returncode == 0 and made.stdout.startswith("c.pt: 9 examples of held-out part of text.txt, "), made.stderr
    done = scripts.run("_utils replaced_tokens", ["a.pth", "b.pth", "--corrupted", "c.pt"], tmp_path)
    assert done.returncode == 0 and done.stdout.startswith(made.stdout.strip()), done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[-3:]] == ["a.pth", "b.pth", "constant"]


def test_an_exported_discriminator_has_the_scores_of_its_checkpoint(two_runs):
    export_hf("a.pth", "exported")
    text = make_corrupted("exported", ["text.txt"], max_length=32, data_seed=3)
    same = make_corrupted("a.pth", ["text.txt"])
    assert all(getattr(text, name).equal(getattr(same, name)) for name in TENSORS)
    scores = compare(text, ["a.pth", "exported", "exported/discriminator"]).drop(columns="AUC difference")
    assert scores.iloc[0].equals(scores.iloc[1]) and scores.iloc[0].equals(scores.iloc[2])


def test_a_token_classifier_is_scored_by_the_difference_of_its_logits(two_runs, small_tokenizer):
    save_bert(BertForTokenClassification, small_tokenizer, "bert", num_labels=2)
    text = make_corrupted("a.pth", ["text.txt"])
    labels, logits = text.is_replaced[text.is_token()].numpy(), logits_one_by_one(text, "bert")
    assert compare(text, ["bert"]).loc["bert", "AUC"].startswith(f"{roc_auc_score(labels, logits):.4f} (")


@pytest.mark.parametrize("spell", [str, lambda path: f"./{path}", lambda path: f"{Path.cwd()}/{path}"])
def test_a_discriminator_that_may_have_seen_the_text_is_reported(two_runs, small_tokenizer, capsys, spell):
    checkpoint("longer.pth", small_tokenizer, 3, "max_length=64")
    compare(make_corrupted("a.pth", [spell("text.txt")], rows=5), ["a.pth", "b.pth"])
    assert "Warning" not in capsys.readouterr().out
    compare(make_corrupted("a.pth", [spell("text.txt")], rows=5), ["longer.pth"])
    assert "'longer.pth' was trained on text.txt with max_length=64 instead of 32" in capsys.readouterr().out
    compare(make_corrupted("a.pth", [spell("text.txt")], part="all", rows=5), ["b.pth"])
    assert "'b.pth' was trained on text.txt and the file was made with --all" in capsys.readouterr().out


# Errors

def save_bert(kind, hf_tokenizer, folder, **kwargs):
    """Write a small BERT with a head and its tokenizer to a folder."""
    config = BertConfig(vocab_size=len(hf_tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                        **kwargs)
    torch.manual_seed(0)
    kind(config).save_pretrained(folder)
    hf_tokenizer.save_pretrained(folder)


@pytest.mark.parametrize("arguments, message", [
    ("", "Pass --make FILE --generator"), ("a.pth", "Pass --make FILE"), ("--make c.pt --text text.txt", "Pass --make FILE"),
    ("a.pth --corrupted c.pt --generator a.pth", "Pass --make FILE"), ("--make c.pt --generator none.pth --text text.txt", "'none.pth'"),
    ("--make c.pt --generator a.pth --text none.txt", "none.txt"), ("--make c.pt --generator a.pth --text few.txt", "holds out no example"),
    ("--make c.pt --generator a.pth --text text.txt --rows 99999", "Invalid value for rows: 99999"),
    ("--make c.pt --generator a.pth --text text.txt --max_length 5000", "Invalid value for max_length: 5000"),
    ("--make c.pt --generator a.pth --text text.txt --mask_prob 1e-9", "No token .* was replaced"),
    ("a.pth --corrupted none.pt", "File not found: 'none.pt'"), ("a.pth --corrupted text.txt", "Cannot read the checkpoint 'text.txt'"),
])
def test_wrong_arguments_raise_and_write_nothing(two_runs, arguments, message):
    Path("few.txt").write_text("\n\n".join(["a small network makes good guesses ."] * 3))
    with pytest.raises(PlainError, match=message):
        main(["replaced_tokens", *arguments.split()])
    assert not Path("c.pt").exists()


@pytest.fixture
def corrupted(two_runs):
    save_corrupted(make_corrupted("a.pth", ["text.txt"], rows=5), "c.pt")
    return Path("c.pt")


def test_a_damaged_or_another_file_raises(corrupted):
    content = load_checkpoint(corrupted)
    for change in ({"kind": "other"}, {"made_by": None}):
        torch.save({**content, **change}, "changed.pt")
        with pytest.raises(PlainError, match="'changed.pt' is not a file of corrupted text"):
            open_corrupted("changed.pt")
    flip_bit(corrupted)
    with pytest.raises(PlainError, match="Cannot read the checkpoint 'c.pt'"):
        open_corrupted(corrupted)


def test_another_vocabulary_raises_before_scoring(corrupted, small_tokenizer, monkeypatch):
    ids = small_tokenizer.get_vocab()
    tokens = sorted(ids, key=ids.get)
    tokens[10], tokens[11] = tokens[11], tokens[10]
    checkpoint("swapped.pth", tokenizer_from_tokens(tokens), 1)
    checkpoint("larger.pth", tokenizer_from_tokens([*tokens, "onemore"]), 1)
    monkeypatch.setattr("_utils.commands.replaced_tokens.discriminator_logits", None)
    for name in ("swapped.pth", "larger.pth"):
        with pytest.raises(PlainError, match=f"'{name}' has another vocabulary .*; the first difference is"):
            compare(open_corrupted(corrupted), ["a.pth", name])


def test_networks_without_the_trained_head_of_a_discriminator_raise(corrupted, small_tokenizer):
    text = open_corrupted(corrupted)
    checkpoint("mlm.pth", small_tokenizer, 1, "size=bert_tiny")
    save_bert(BertForMaskedLM, small_tokenizer, "bert")
    for name, message in {"mlm.pth": "has no discriminator", "bert": "it lacks classifier"}.items():
        with pytest.raises(PlainError, match=message):
            compare(text, ["a.pth", name])


def test_unusable_networks_raise(corrupted, small_tokenizer):
    text = open_corrupted(corrupted)
    save_bert(BertForTokenClassification, small_tokenizer, "short", num_labels=2, max_position_embeddings=16)
    with pytest.raises(PlainError, match="'short' has 16 positions, but the longest corrupted example has"):
        compare(text, ["short"])
    save_bert(BertForMaskedLM, small_tokenizer, "short_generator", max_position_embeddings=16)
    with pytest.raises(PlainError, match="'short_generator' has 16 positions, fewer than max_length=128"):
        make_corrupted("short_generator", ["text.txt"])
    save_bert(BertForMaskedLM, small_tokenizer, "untied", tie_word_embeddings=False)
    with pytest.raises(PlainError, match="The output layer of 'untied' differs from its token embeddings"):
        make_corrupted("untied", ["text.txt"], max_length=32)
    content = load_checkpoint("checkpoints/pretrain/a.pth")
    content["model"]["discriminator.discriminator_predictions.dense_prediction.bias"].fill_(float("nan"))
    torch.save(content, "nan.pth")
    with pytest.raises(PlainError, match="'nan.pth' computes NaN or infinite logits"):
        compare(text, ["nan.pth"])
