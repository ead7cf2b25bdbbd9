"""Tokenization and example building against the recorded output of Google's code and electra_pytorch (F1-F4); needs
../shared.
"""
import random
import re

import pytest
from recorded import recorded

from _utils.text.processors import ELECTRADataProcessor
from _utils.text.vocabulary import from_vocab_file


@pytest.fixture(scope="module")
def official_processor(shared):
    tokenizer = from_vocab_file(shared / "data/vocab.txt")
    return ELECTRADataProcessor(None, tokenizer, 128, apply_cleaning=False, drop_parentheses=False)


def test_tokens_of_every_recorded_line_are_those_of_googles_tokenizer(shared, official_processor):
    lines = recorded(shared / "golden/official/tokenization.json")
    tokenizer = official_processor.tokenizer
    for line in lines:
        _, *ids_of_lines = official_processor.tokenize([(line["text"], False)])
        tokens = [tokenizer.id_to_token(i) for ids in ids_of_lines for i in ids]
        assert tokens == line["tokens"], line["text"]
    assert len(lines) > 250


@pytest.mark.parametrize("blank_lines_separate", [1, 0])
def test_examples_and_number_of_random_draws_match_google(shared, official_processor, blank_lines_separate):
    arrays = recorded(shared / "golden/official/pretrain_examples.npz")
    expected = {name: arrays[f"L128_seed0_blanks{blank_lines_separate}/{name}"]
                for name in ("input_ids", "input_mask", "segment_ids", "next_random")}
    text = (shared / "golden/official/text20.txt").read_text()
    rng = random.Random(0)
    examples = official_processor(re.split(r"\n\s*\n", text) if blank_lines_separate else [text], rng)

    assert len(examples["input_ids"]) == len(expected["input_ids"])
    for row, (ids, first_length) in enumerate(zip(examples["input_ids"], examples["sentA_length"])):
        padding = 128 - len(ids)
        assert ids + [0] * padding == expected["input_ids"][row].tolist()
        assert [1] * len(ids) + [0] * padding == expected["input_mask"][row].tolist()
        segments = [0] * first_length + [1] * (len(ids) - first_length) + [0] * padding
        assert segments == expected["segment_ids"][row].tolist()
    assert rng.random() == float(expected["next_random"])


@pytest.mark.parametrize("cleaning", [True, False])
def test_examples_match_electra_pytorch(shared, cleaning):
    folder = shared / "golden/electra_pytorch"
    expected, documents = (
        recorded(folder / f"processor_len128_cleaning{cleaning}_minimizeTrue.json"),
        recorded(folder / "docs20.json"),
    )
    processor = ELECTRADataProcessor(None, from_vocab_file(folder / "vocab2000.txt"), 128, apply_cleaning=cleaning)
    assert processor(documents, random.Random(0)) == expected["out"]
