"""Tokenization and example building against the recorded output of Google's code and electra_pytorch (F1-F4)."""
import random
import re

import pytest
from recorded import GOLDEN, recorded

from _utils.text.processors import ELECTRADataProcessor
from _utils.text.vocabulary import from_vocab_file


@pytest.fixture(scope="module", params=["the texts of this repository", "../shared"])
def google(request):
    """(documents, ELECTRADataProcessor with Google's settings, recorded tokens of lines, recorded examples)."""
    if request.param == "../shared":
        shared = request.getfixturevalue("shared")
        folder, vocab = shared / "golden/official", shared / "data/vocab.txt"
        text = (folder / "text20.txt").read_text()
        lines, arrays = recorded(folder / "tokenization.json"), recorded(folder / "pretrain_examples.npz")
    else:
        vocab, text = GOLDEN / "electra_pytorch/vocab2000.txt", "\n\n".join(recorded("electra_pytorch/docs20.json"))
        lines, arrays = recorded("official/docs20_tokenization.json"), recorded("official/docs20_examples.npz")
    processor = ELECTRADataProcessor(None, from_vocab_file(vocab), 128, apply_cleaning=False, drop_parentheses=False)
    return re.split(r"\n\s*\n", text), processor, lines, arrays


def test_tokens_of_every_recorded_line_are_those_of_googles_tokenizer(google):
    _, processor, lines, _ = google
    for line in lines:
        _, *ids_of_lines = processor.tokenize([(line["text"], False)])
        tokens = [processor.tokenizer.id_to_token(i) for ids in ids_of_lines for i in ids]
        assert tokens == line["tokens"], line["text"]
    assert len(lines) >= 20


@pytest.mark.parametrize("blank_lines_separate", [1, 0])
def test_examples_and_number_of_random_draws_match_google(google, blank_lines_separate):
    documents, processor, _, arrays = google
    expected = {name: arrays[f"L128_seed0_blanks{blank_lines_separate}/{name}"]
                for name in ("input_ids", "input_mask", "segment_ids", "next_random")}
    rng = random.Random(0)
    examples = processor(documents if blank_lines_separate else ["\n".join(documents)], rng)

    assert len(examples["input_ids"]) == len(expected["input_ids"])
    for row, (ids, first_length) in enumerate(zip(examples["input_ids"], examples["sentA_length"])):
        padding = 128 - len(ids)
        assert ids + [0] * padding == expected["input_ids"][row].tolist()
        assert [1] * len(ids) + [0] * padding == expected["input_mask"][row].tolist()
        segments = [0] * first_length + [1] * (len(ids) - first_length) + [0] * padding
        assert segments == expected["segment_ids"][row].tolist()
    assert rng.random() == float(expected["next_random"])


@pytest.mark.parametrize("cleaning", [True, False])
def test_examples_match_electra_pytorch(cleaning):
    expected = recorded(f"electra_pytorch/processor_len128_cleaning{cleaning}_minimizeTrue.json")
    tokenizer = from_vocab_file(GOLDEN / "electra_pytorch/vocab2000.txt")
    processor = ELECTRADataProcessor(None, tokenizer, 128, apply_cleaning=cleaning)
    assert processor(recorded("electra_pytorch/docs20.json"), random.Random(0)) == expected["out"]
