"""The WSC trick: reading schemas, locating WNLI's pronouns, and scoring candidates."""
import json
import re
from collections import Counter

import pytest
import torch

from _utils.errors import UserError
from _utils.networks import load_pretrained
from _utils.tasks.glue import load_task
from _utils.tasks.wsc import WSC, Schema, SchemaPredictor, SchemaRows, load_wsc, make_schema, wnli_schemas

TEXT = "The trophy does not fit in the suitcase because it is too big."
START = TEXT.index(" it ") + 1


def test_a_schema_has_the_candidate_in_place_of_the_pronoun():
    text, start, end, label = make_schema(TEXT, START, START + 2, "The trophy", 1)
    assert text == "The trophy does not fit in the suitcase because The trophy is too big."
    assert (text[start:end], label) == ("The trophy", 1)
    possessive = make_schema("The man lifted his son because he was strong.", 15, 18, "the man", 1)
    assert possessive.text == "The man lifted the man's son because he was strong."


def test_a_pronoun_is_not_found_within_an_earlier_word(tmp_path):
    target = {"span1_text": "the coat", "span2_text": "it", "span2_index": 5}
    (tmp_path / "train.jsonl").write_text(
        json.dumps({"text": "The man with a coat lost it.", "label": True, "target": target}))
    assert [schema.text for schema in load_wsc("train", tmp_path)] == ["The man with a coat lost the coat."]


def test_the_test_set_of_wnli_contains_the_schemas_of_wsc(shared):
    """136 of 146 pronouns and candidates are exactly as WSC annotates them; the order of the rows differs."""
    letters = lambda text: "".join(re.findall(r"\w", text.lower()))
    plain = lambda text: letters(re.sub("^(the|a|an) ", "", text.lower()).removesuffix("'s"))
    annotated = Counter()
    for row in map(json.loads, (shared / "data/wsc/test.jsonl").open()):
        before = row["text"].split(" ")[:row["target"]["span2_index"]]
        annotated[letters("".join(before)), plain(row["target"]["span1_text"])] += 1
    found = wnli_schemas(load_task("wnli", shared / "data/glue").splits["test"])
    predicted = Counter((letters(text[:start]), plain(text[start:end])) for text, start, end, _ in found)
    assert predicted.total() == annotated.total() == 146 and (predicted & annotated).total() >= 136


@pytest.mark.parametrize("line", [
    "{", '{"text": "It is.", "label": true}',
    '{"text": "a b", "label": 1, "target": {"span1_text": "a", "span2_text": "it", "span2_index": 9}}'])
def test_a_malformed_line_of_wsc_is_reported(tmp_path, line):
    good = json.dumps(
        {"text": "a b", "label": True, "target": {"span1_text": "a", "span2_text": "b", "span2_index": 1}}
    )
    (tmp_path / "train.jsonl").write_text(f"\ufeff{good}\n{line}\n")  # with a byte order mark
    with pytest.raises(UserError, match="train.jsonl, line 2"):
        load_wsc("train", tmp_path)


def candidates(ids, inside, pretrained):
    """The marked tokens of each text (B, L), without spaces."""
    return [
        "".join(pretrained.hf_tokenizer.convert_ids_to_tokens(row[mask])).replace("##", "")
        for row, mask in zip(ids, inside.bool())
    ]


def test_the_discriminator_scores_the_candidates(fresh_checkpoint):
    pretrained = load_pretrained(str(fresh_checkpoint), "tiny")
    model = SchemaPredictor(pretrained.discriminator()).eval()
    schemas = [make_schema(TEXT, START, START + 2, *given) for given in (("the trophy", 1), ("the suitcase", 0))]
    ids, mask, inside, labels = SchemaRows(schemas, pretrained.hf_tokenizer, 64).batch([0, 1])
    assert labels.tolist() == [1, 0] and candidates(ids, inside, pretrained) == ["thetrophy", "thesuitcase"]
    with torch.no_grad():
        logits, original = model(ids, mask, inside), -model.discriminator(ids, mask).logits
    score = torch.stack([row[candidate].mean() for row, candidate in zip(original, inside.bool())])
    torch.testing.assert_close(logits, torch.stack([torch.zeros(2), score - model.threshold.detach()], 1))
    with_unknown = SchemaRows([Schema(TEXT, -1, -1, -1), *schemas], pretrained.hf_tokenizer, 64)
    decisions = WSC.head.outputs(with_unknown, torch.tensor([[0., 1.]] * 3)).argmax(-1)
    assert decisions.tolist() == [WSC.majority, 1, 1]
