"""Examples and their cache."""
import json
import multiprocessing
import random
import shutil
from collections import Counter

import datasets
import numpy as np
import pytest
from corpora import corpus_of, make_corpus, sentence
from tiny_pretraining import BASE

import pretrain
from _utils.config import complete
from _utils.errors import UserError
from _utils.text import load_data, processors, readers, sources
from _utils.text.examples import prepare_examples, split_held_out, unigram_entropy
from _utils.text.processors import ELECTRADataProcessor
from _utils.text.sources import load_documents


@pytest.fixture
def small_blocks(monkeypatch):
    if multiprocessing.get_start_method() != "fork":
        pytest.skip("monkeypatching reaches only forked processes")
    monkeypatch.setattr(processors, "ROWS_PER_BLOCK", 10)


def test_examples_do_not_depend_on_the_number_of_processes_and_are_reused_for_any(
    tmp_path, small_tokenizer, small_blocks, monkeypatch
):
    prepare = lambda folder, **options: prepare_examples(
        make_corpus(), small_tokenizer, 32, 7, tmp_path / folder, **options
    ).to_dict()
    expected = prepare("1", num_proc=1)
    assert expected == prepare("2", num_proc=2) == prepare("all")
    assert len(expected["input_ids"]) > 50  # many blocks, each with its own random numbers
    monkeypatch.setattr(ELECTRADataProcessor, "map", lambda *_: pytest.fail("rebuilt"))
    assert expected == prepare("2", num_proc=1) == prepare("2", num_proc=3)


@pytest.mark.parametrize("change", [
    dict(max_length=24), dict(seed=8), dict(clean=True), dict(long_lines="truncate"), dict(corpus=make_corpus(seed=1))])
def test_other_text_length_cleaning_or_seed_gives_new_examples(tmp_path, small_tokenizer, change):
    setting = dict(corpus=make_corpus(), hf_tokenizer=small_tokenizer, max_length=32, seed=7, cache_dir=tmp_path)
    before = prepare_examples(**setting).to_dict()
    assert prepare_examples(**{**setting, **change}).to_dict() != before
    assert prepare_examples(**setting).to_dict() == before


def test_hub_corpora_are_cleaned_and_other_text_is_unchanged(tmp_path, small_tokenizer):
    texts = ["short line of a table\n" + "the generator replaces words " * 5 + "()"] * 20
    for name, has_short_lines, has_parentheses in (
            ("wikipedia", False, False), ("openwebtext", True, False), ("own text", True, True)):
        examples = prepare_examples(corpus_of(texts, name), small_tokenizer, 64, 7, tmp_path)
        text = " ".join(small_tokenizer.batch_decode(examples["input_ids"][:]))
        assert ("table" in text) == has_short_lines
        assert ("[UNK]" in text) == has_parentheses  # which the vocabulary lacks


@pytest.mark.parametrize("line, is_reported", [("she sings a song", True), ("she sings a song " * 9, False)])
def test_cleaning_that_drops_much_of_the_text_is_reported(tmp_path, small_tokenizer, capsys, line, is_reported):
    texts = [("the generator replaces words " * 4 + "\n") + (line + "\n") * 9] * 9
    for clean, expected in ((True, is_reported), (False, False)):
        prepare_examples(corpus_of(texts), small_tokenizer, 64, 7, tmp_path, clean)
        assert ("clean=False" in capsys.readouterr().out) == expected


def test_the_end_of_a_corpus_is_checked_too(tmp_path, small_tokenizer):
    """Files are read in the order of their names, so another language may begin after the first block."""
    texts = [sentence(random.Random(0))] * 1100 + ["文字が続く文章です。" * 5] * 1500
    with pytest.raises(UserError, match="vocabulary"):
        prepare_examples(corpus_of(texts), small_tokenizer, 32, 0, tmp_path)


def test_held_out_examples_and_those_of_the_unigram_entropy_are_from_the_whole_corpus():
    examples = datasets.Dataset.from_dict({"input_ids": [[i * 16 // 100_000] for i in range(100_000)]})
    _, held_out = split_held_out(examples)
    assert Counter(sum(held_out["input_ids"][:], [])) == dict.fromkeys(range(16), 1024 / 16)
    assert unigram_entropy(examples, [99]) == pytest.approx(np.log(16))


def loaded(*options):
    """(tokenizer, dataloaders) of a configuration."""
    return load_data(complete(pretrain.c.override([*BASE, "vocab=vocab.txt", *options])))


def ids_in(split):
    """The token ids of all examples of a split."""
    return split.hf_dset.with_format(None)["input_ids"][:]


def test_keys_of_the_text_change_the_examples_and_the_seed_only_their_order(workplace):
    _, plain = loaded()
    for option in ("data_seed=6", "long_lines=truncate"):
        assert ids_in(loaded(option)[1].train_ds) != ids_in(plain.train_ds), option
    _, other = loaded("seed=6")
    assert ids_in(other.train_ds) == ids_in(plain.train_ds)
    assert not other.train.batch_of_step(0)[0].equal(plain.train.batch_of_step(0)[0])


def test_each_text_of_a_run_holds_out_examples(workplace):
    """Equal texts hold out the same ones."""
    shutil.copy("text.txt", "copy.txt")
    held_out = ids_in(loaded("datas=text.txt,copy.txt")[1].valid_ds)
    n = len(held_out) // 2
    assert n and held_out[:n] == held_out[n:]


@pytest.mark.parametrize("option, expected", {"": "e", "cased=True": "É", "strip_accents=False": "é"}.items())
def test_keys_of_the_vocabulary_are_those_of_the_tokenizer(workplace, option, expected):
    hf_tokenizer, _ = loaded(*option.split())
    assert hf_tokenizer.backend_tokenizer.normalizer.normalize_str("É") == expected


@pytest.mark.parametrize("name, long_lines, is_kept", [
    ("mine.txt", None, True), ("mine.txt", "truncate", False), ("wikipedia", "keep", True),
    *((name, None, True) for name in ("prose", "someone/web:crawl")),
    *((name, None, False) for name in ("wikipedia", "wikipedia:20231101.de", "openwebtext", "bookcorpus"))])
def test_long_lines_of_paths_are_kept_and_those_of_named_corpora_truncated(
    tmp_path, small_tokenizer, name, long_lines, is_kept
):
    corpus = corpus_of(["the generator replaces some words of the text , " * 20] * 30, name)
    examples = prepare_examples(corpus, small_tokenizer, 64, 7, tmp_path, long_lines=long_lines)
    text = " ".join(small_tokenizer.batch_decode(examples["input_ids"][:], skip_special_tokens=True))
    n = text.count("replaces")
    assert n == 20 * 30 if is_kept else 0 < n < 10 * 30


def sentences(n):
    rng = random.Random(n)
    return [sentence(rng) for _ in range(n)]


def test_examples_of_bookcorpus_are_full_though_it_has_one_sentence_per_row(tmp_path, small_tokenizer):
    examples = prepare_examples(corpus_of(sentences(3000), "bookcorpus"), small_tokenizer, 64, 7, tmp_path)
    lengths, first = np.array([len(ids) for ids in examples["input_ids"]]), np.array(examples["sentA_length"])
    assert lengths.mean() > .9 * 64 and (lengths > first).mean() > .75  # a tenth has one segment by design


@pytest.fixture
def short_rows(monkeypatch):
    """Store documents of 1,000 or more characters in rows of 200."""
    for module in (readers, sources):
        monkeypatch.setattr(module, "LONG", 1000)
    monkeypatch.setattr(readers, "PIECE", 200)


@pytest.mark.parametrize("suffix, divided", [(".txt", "file"), (".jsonl", "blank_line")])
def test_long_document_in_several_rows_gives_the_same_examples(tmp_path, short_rows, small_tokenizer, suffix, divided):
    texts = ["\n".join(sentences(n)) for n in ((200,) if divided == "file" else (5, 200, 3))]
    path = tmp_path / f"text{suffix}"
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts) if suffix == ".jsonl" else texts[0])
    corpus = load_documents(str(path), tmp_path, documents=divided)
    rows = corpus.documents[:]
    assert "".join(rows["text"]) == "".join(texts) and max(map(len, rows["text"])) < 1000
    processor = ELECTRADataProcessor(None, small_tokenizer, 32, apply_cleaning=False, drop_parentheses=False, seed=7)
    assert prepare_examples(corpus, small_tokenizer, 32, 7, tmp_path, long_lines="truncate")[:] == processor(texts)


def test_cleaning_measures_lines_as_they_are_in_the_text(small_tokenizer):
    """As electra_pytorch: before blanks at their ends and "()" are removed (D5)."""
    processor = ELECTRADataProcessor(None, small_tokenizer, 32)
    words = "the " * 19  # 76 characters
    lines = [f"{words}()()", f"    {words}", words, "()" * 40]
    assert len(list(processor.tokenize([("\n".join(lines), True)]))) == 2


@pytest.mark.parametrize("seed", range(3))
def test_no_token_is_lost_or_leaves_its_document_if_long_lines_are_kept(small_tokenizer, monkeypatch, seed):
    monkeypatch.setattr(processors, "LONG", 180)  # characters, of whole words in every document
    rng = random.Random(seed)
    lengths = [1, 2, 5, 29, 30, 31, 32, 33, 100]
    texts = ["\n".join(" ".join([word] * n) for n in rng.choices(lengths, k=rng.randint(1, 8)))
             for word in ("the", "words", "sentence", "text")]
    processor = ELECTRADataProcessor(None, small_tokenizer, 32, apply_cleaning=False, long_lines="keep")
    examples = processor(texts, random.Random(seed))["input_ids"]
    special = {small_tokenizer.cls_token_id, small_tokenizer.sep_token_id}
    found = [[i for i in ids if i not in special] for ids in examples]
    of_documents = small_tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert Counter(sum(found, [])) == Counter(sum(of_documents, [])) and max(map(len, examples)) <= 32
    assert all(any(set(ids) <= set(document) for document in of_documents) for ids in found)
