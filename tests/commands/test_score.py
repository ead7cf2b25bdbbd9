"""The command `score`: scores of texts by each kind of network, ranks, files that it reads, and its errors."""
import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from exported import load as load_exported
from exported import score as score_exported
from tiny_pretraining import save_fresh

from _utils.__main__ import main
from _utils.commands.export_hf import export_hf
from _utils.errors import UserError
from _utils.networks import load_with_head, replaced_logits
from _utils.training.pseudo_likelihood import load

TEXTS = ["The generator replaces some words.", "A network makes guesses, good and bad.", "time", "the the the words"]


@pytest.fixture(scope="module")
def electric(small_tokenizer, tmp_path_factory):
    """Path of a checkpoint of Electric with random weights, for inputs of 16 tokens."""
    path = tmp_path_factory.mktemp("electric") / "electric_0_100.0%.pth"
    return str(save_fresh(path, small_tokenizer, "objective=electric", "max_length=16"))


@torch.no_grad()
def plain_scores(name, part, text):
    """The scores of the tokens of a text, computed as directly as possible."""
    model = load_with_head(name, part)
    ids = torch.tensor([[2, *model.hf_tokenizer(text, add_special_tokens=False).input_ids, 3]])
    if part == "discriminator":
        return (-replaced_logits(model.network(ids)))[0, 1:-1].tolist()
    scores = []
    for i in range(1, ids.shape[1] - 1):
        masked = ids.clone()
        masked[0, i] = model.hf_tokenizer.mask_token_id
        scores.append(model.network(masked).logits[0, i].log_softmax(-1)[ids[0, i]].item())
    return scores


@pytest.mark.parametrize("part, meaning", [("discriminator", "original"), ("generator", "masks one token")])
def test_scores_of_both_networks_of_an_electra_equal_a_plain_computation(fresh_checkpoint, part, meaning, monkeypatch):
    """In several batches, also within one text."""
    monkeypatch.setattr("_utils.training.pseudo_likelihood.TOKENS_PER_BATCH", {"cpu": 40})
    scorer, texts = load(fresh_checkpoint, part), [*TEXTS, "In 1843 the ¤ paper was read aloud:"]
    assert meaning in scorer.meaning
    for text, found in zip(texts, scorer.score(texts), strict=True):
        expected = plain_scores(str(fresh_checkpoint), part, text)
        assert found.token_scores == pytest.approx(expected, abs=1e-5)
        assert found.score == pytest.approx(sum(expected), abs=1e-4) and len(found.tokens) == len(expected)


def test_a_text_longer_than_the_training_is_divided(electric):
    long = " ".join(["words of a text"] * 9)
    [found] = load(electric).score([long])
    ids = load_with_head(electric).hf_tokenizer(long, add_special_tokens=False).input_ids
    network, n_parts = load_with_head(electric).network, -(-len(ids) // 14)
    size = -(-len(ids) // n_parts)
    parts = [ids[i:i + size] for i in range(0, len(ids), size)]
    with torch.no_grad():
        expected = [-network(torch.tensor([[2, *part, 3]])).logits[0, 1:-1] for part in parts]
    assert len(parts) > 1 and found.token_scores == pytest.approx(torch.cat(expected).tolist(), abs=1e-5)


def test_an_exported_network_gives_a_long_text_the_score_of_its_checkpoint(fresh_checkpoint, exported):
    """It has more positions than were trained."""
    long = " ".join(TEXTS * 5)
    [expected], [found] = (load(name).score([long]) for name in (fresh_checkpoint, exported))
    assert found.score == pytest.approx(expected.score, abs=1e-4)


def output(capsys):
    printed = capsys.readouterr()
    Path("out.tsv").write_text(printed.out)
    return pd.read_csv("out.tsv", sep="\t", quoting=3), printed.err


def test_hypotheses_are_ranked_within_their_group(electric, empty_folder, capsys):
    """Equal hypotheses share the best rank."""
    texts = [*TEXTS, TEXTS[0]]
    table = pd.DataFrame({"utterance": ["b", "a", "b", "a", "b"], "hypothesis": texts})
    table.to_csv("hypotheses.csv", index=False)
    main(["score", electric, "hypotheses.csv", "--text", "hypothesis", "--group", "utterance", "--tokens"])
    found, message = output(capsys)
    scored = load(electric).score(texts)
    assert found["score"].tolist() == pytest.approx([one.score for one in scored], abs=1e-4)
    assert found["tokens"].tolist() == [len(one.tokens) for one in scored] and found["text"].tolist() == texts
    assert (found["rank"] == found.groupby("group")["score"].rank(method="min", ascending=False)).all()
    assert found["group"].tolist() == table["utterance"].tolist() and "Electric" in message
    assert json.loads(found["token_scores"][2]) == [["time", pytest.approx(scored[2].score, abs=1e-4)]]
    main(["score", electric, "hypotheses.csv", "--text", "hypothesis", "--group", "hypothesis"])
    assert (output(capsys)[0]["rank"] == 1).all()


@pytest.mark.parametrize("settings", ["objective=electric", "size=mini"])
def test_the_example_with_plain_transformers_gives_the_same_score(small_tokenizer, empty_folder, settings):
    """The discriminator of `mini` is a RoFormer, a classifier with two labels."""
    checkpoint = str(save_fresh(empty_folder / "one_0_100.0%.pth", small_tokenizer, settings, "max_length=16"))
    export_hf(checkpoint, "exported")
    model = load_exported("exported/discriminator")
    for text, scored in zip(TEXTS, load(checkpoint).score(TEXTS)):
        assert score_exported(*model, text).item() == pytest.approx(scored.score, abs=1e-5)


@pytest.mark.parametrize("objective, part", [("replace_mlm", "generator"), ("electric", "discriminator")])
def test_an_exported_network_has_the_objective_of_its_checkpoint(small_tokenizer, empty_folder, objective, part):
    path = str(save_fresh(empty_folder / "other_0_100.0%.pth", small_tokenizer, f"objective={objective}"))
    export_hf(path, "out")
    if part == "discriminator":
        assert load("out/discriminator").meaning == load(path).meaning
        return
    for name in (path, "out/generator"):
        with pytest.raises(UserError, match="replace_mlm"):
            load(name, part)


def test_lines_and_columns_that_are_missing_are_named(electric, empty_folder, capsys):
    Path("texts.txt").write_text("One.\nTwo.\r\n")
    main(["score", electric, "texts.txt"])
    assert output(capsys)[0]["text"].tolist() == ["One.", "Two."]
    Path("empty.txt").write_text("One.\n\nTwo.\n")
    Path("table.tsv").write_text("sentence\tgroup\nOne.\t1\n")
    for file, options, named in (("empty.txt", [], "line 2"), ("table.tsv", [], "'text'"),
                                 ("table.tsv", ["--text", "sentence", "--group", "id"], "'id'"),
                                 ("texts.txt", ["--group", "id"], "'id'"),
                                 ("texts.txt", ["--text", "id"], "'id'"), ("missing.txt", [], "missing.txt")):
        with pytest.raises(UserError, match=named):
            main(["score", electric, file, *options])


def test_a_file_of_words_and_tags_is_not_read_as_texts(electric, empty_folder):
    Path("words.conll").write_text("Anna B-PER\nleft O\n\nwho O\nleft O\n")
    with pytest.raises(UserError, match="words.conll.*'text'"):
        main(["score", electric, "words.conll"])
