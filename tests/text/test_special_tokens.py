"""Tokenizers with other special tokens than BERT's, without a template, and with tokens that their users added."""
import json

import numpy as np
import pytest
from tiny_pretraining import metrics, run, save_fresh
from tokenizer_kinds import KINDS, MARKERS, ROBERTA, TEXT, save_folder, sentences, train
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import finetune
from _utils.commands.export_hf import export_hf
from _utils.custom.question_files import read_questions
from _utils.custom.question_rows import QuestionRows
from _utils.custom.questions import QuestionOptions
from _utils.custom.words import WordRows
from _utils.errors import UserError
from _utils.networks import load_pretrained
from _utils.runs.checkpoints import tokenizer_record
from _utils.tasks.rows import EncodedRows, Window, text_messages
from _utils.text import load_documents, load_tokenizer, never_masked, templates_of, text_tokenizer, tokenizer_of
from _utils.text.examples import prepare_examples
from _utils.text.exported_tokenizer import exported_tokenizer
from _utils.text.processors import ELECTRADataProcessor
from _utils.text.vocabulary import tokenizer_from_json

PAIR = ["some words", f"of {MARKERS[0]}them{MARKERS[1]}"]


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory):
    """The folder of a tokenizer of this kind with added tokens."""
    return save_folder(kind, tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def checkpoint(folder, tmp_path_factory):
    """The path of a pretraining checkpoint with this tokenizer."""
    path = tmp_path_factory.mktemp("checkpoint") / "run_0_100.0%.pth"
    return str(save_fresh(path, load_tokenizer(folder), f"vocab={folder}"))


def ids_of_pretraining(tokenizer, lines):
    """The ids of the only example of lines of text."""
    return ELECTRADataProcessor(None, tokenizer, 64, apply_cleaning=False)(["\n".join(lines)])["input_ids"][0]


def encoded(tokenizer, *texts):
    """The encoding in finetuning of a text or a pair."""
    found = finetune.tokenize_sents_max_len(dict(enumerate(texts)), range(len(texts)), 64, hf_tokenizer=tokenizer)
    return Window(found["inp_ids"], found["token_type_ids"])


def test_all_programs_and_the_exported_tokenizer_have_the_same_tokens(folder, checkpoint, tmp_path):
    given, loaded = load_tokenizer(folder), load_pretrained(checkpoint, "tiny").hf_tokenizer
    export_hf(checkpoint, str(tmp_path / "out"))
    exported = AutoTokenizer.from_pretrained(tmp_path / "out/discriminator")
    ids = encoded(loaded, TEXT).ids
    assert ids_of_pretraining(given, [TEXT]) == ids == encoded(given, TEXT).ids == exported(TEXT)["input_ids"]
    assert {given.convert_tokens_to_ids(token) for token in [*MARKERS, "[NUM]"]} <= set(ids)
    assert ids[0] == given.cls_token_id and ids[-1] == given.sep_token_id and given.unk_token_id not in ids
    special_as_text = f"{TEXT} [SEP] </s> [MASK] [UNK] word"
    exported_tokenizer(loaded, 64).save_pretrained(tmp_path / "text")  # of a finetuned model
    of_classifier = AutoTokenizer.from_pretrained(tmp_path / "text")
    assert encoded(loaded, special_as_text).ids == of_classifier(special_as_text)["input_ids"]
    pair, exported_pair = encoded(loaded, *PAIR), exported(*PAIR)
    assert pair.ids == exported_pair["input_ids"] and pair.type_ids == exported_pair["token_type_ids"]
    assert given.all_special_ids == loaded.all_special_ids == exported.all_special_ids


@pytest.mark.parametrize("has_signs", [False, True])
def test_names_of_special_tokens_in_a_text_are_plain_text(kind, tmp_path, has_signs):
    """Also if they are pieces of a Unigram model, as those of XLM-RoBERTa are, or words between spaces (F1).

    has_signs: whether a Unigram model has pieces of which such names consist, too.
    """
    tokenizer, pieces = train(kind), [[sign, -20.] for sign in "<>/mk" * has_signs]
    if kind.lower().startswith("word") and not has_signs:
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    content = json.loads(tokenizer.to_str())
    if content["model"]["type"] == "Unigram":
        content["model"]["vocab"] = [[piece, 0. if piece in ROBERTA else score]
                                     for piece, score in content["model"]["vocab"]] + pieces
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    loaded = load_tokenizer(str(tmp_path / "tokenizer.json"))
    text = "a <mask> [MASK] or <pad> [PAD] </s>"
    ids = text_tokenizer(loaded).encode(text, add_special_tokens=False).ids
    assert not {*ids} & {*loaded.all_special_ids} - {loaded.unk_token_id}
    exported_tokenizer(loaded, 64).save_pretrained(tmp_path / "text")
    exported = AutoTokenizer.from_pretrained(tmp_path / "text")
    assert exported(text)["input_ids"] == encoded(loaded, text).ids
    assert exported.all_special_ids == loaded.all_special_ids


def test_a_mask_that_takes_the_blank_before_it_keeps_doing_so(tmp_path):
    """In a tokenizer.json that does not name the roles of its tokens."""
    tokenizer = train("bytes with RoBERTa's template")
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = load_tokenizer(str(tmp_path / "tokenizer.json"))
    ids = loaded("the <mask> of", add_special_tokens=False)["input_ids"]
    assert ids == tokenizer.encode("the <mask> of", add_special_tokens=False).ids and loaded.mask_token_id in ids


def test_a_unigram_model_divides_text_as_before():
    """A character that is only part of longer pieces."""
    pieces = [*((name, 0.) for name in ROBERTA), ("\u2581aa", -1.), ("aa", -1.), ("bb", -1.), ("a", -9.), ("b", -9.),
              ("aXb", -9.), ("\u2581", -3.)]
    tokenizer = Tokenizer(models.Unigram(pieces, ROBERTA.index("<unk>")))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    roles = dict(zip(("cls_token", "pad_token", "sep_token", "unk_token", "mask_token"), ROBERTA))
    loaded = tokenizer_from_json(tokenizer.to_str(), roles)
    assert text_tokenizer(loaded).encode("aaaaXbb").ids == tokenizer.encode("aaaaXbb").ids


def test_tags_and_questions_use_added_tokens(folder, tmp_path):
    tokenizer = load_tokenizer(folder)
    tagged = WordRows([TEXT.split()], [[0] * len(TEXT.split())], tokenizer, 64).flat["inp_ids"]
    question = {"context": TEXT, "qas": [{"id": "a", "question": f"which {MARKERS[0]}", "answers": []}]}
    (tmp_path / "a.json").write_text(json.dumps({"data": [{"paragraphs": [question]}]}))
    asked = QuestionRows(read_questions(str(tmp_path / "a.json")), tokenizer, 64, QuestionOptions()).flat["inp_ids"]
    for ids in (tagged, asked):
        assert set(tokenizer.convert_tokens_to_ids([*MARKERS, "[NUM]"])) <= set(ids.tolist())
        assert ids[0] == tokenizer.cls_token_id


@pytest.mark.parametrize("name", ["renamed.json", "tokenizer.json"])
def test_a_tokenizer_json_is_a_vocabulary_as_a_file_and_alone_in_a_folder(kind, tmp_path, name):
    saved = train(kind)
    saved.add_special_tokens(MARKERS)
    saved.add_tokens(["[NUM]"])
    saved.save(str(tmp_path / name))
    tokenizer = load_tokenizer(str(tmp_path / name if name == "renamed.json" else tmp_path))
    encoding = encoded(tokenizer, *PAIR)
    assert encoding.ids[0] == tokenizer.cls_token_id and encoding.ids.count(tokenizer.sep_token_id) >= 2
    assert None not in (tokenizer.pad_token, tokenizer.mask_token)
    special = {*never_masked(tokenizer, "official")}
    assert special >= {saved.token_to_id(marker) for marker in MARKERS} and saved.token_to_id("[NUM]") not in special


def test_roles_of_tokens_with_other_names_are_read_from_the_file_beside_the_tokenizer(tmp_path):
    path, names = tmp_path / "tokenizer.json", "<none> <what> <start> <end> <gap>".split()
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*names, "words"])}, unk_token="<what>"))
    tokenizer.save(str(path))
    with pytest.raises(UserError, match="tokenizer_config.json"):
        load_tokenizer(str(path))
    roles = dict(zip("pad_token unk_token cls_token sep_token mask_token".split(), names))
    path.with_name("tokenizer_config.json").write_text(json.dumps(roles))
    assert load_tokenizer(str(path))("words")["input_ids"] == [2, 5, 3]


@pytest.mark.parametrize("is_file", [True, False])
def test_a_vocab_txt_may_have_the_names_of_roberta_also_alone_in_a_folder(tmp_path, is_file):
    (tmp_path / "vocab.txt").write_text("<s>\n<pad>\n</s>\n<unk>\n<mask>\nsome\nwords")
    tokenizer = load_tokenizer(str(tmp_path / "vocab.txt" if is_file else tmp_path))
    assert encoded(tokenizer, "some words", "some").ids == [0, 5, 6, 2, 5, 2] and tokenizer.mask_token_id == 4


def test_pretraining_with_the_names_of_roberta(workplace):
    """Padding has the id 1, also in a run that continues from the checkpoint."""
    (workplace / "text.txt").write_text("\n".join(sentences()))
    folder = save_folder("bytes with RoBERTa's template", workplace / "tokenizer")
    learn = run("masking=official", "steps=4", vocab=f"vocab={folder}")
    assert learn.model.pad_token_id == 1 and np.isfinite(metrics("held_out")[-1]["disc_loss"])
    assert not any((ids[:, 1:] == 0).any() for loader in learn.dls.loaders for ids, _ in loader)  # <s>
    learn = run("initial_weights=mini_5_100.0%.pth", "base_run_name=further", "steps=2", vocab=None)
    assert learn.model.pad_token_id == learn.model.discriminator.config.pad_token_id == 1


@pytest.mark.parametrize("role", ["pad_token", "mask_token"])
@pytest.mark.parametrize("other", ["unk_token", "sep_token"])
def test_padding_and_mask_must_not_have_another_role(tmp_path, role, other):
    """As after tokenizer.pad_token = tokenizer.sep_token, with which attention would skip every [SEP]."""
    path = tmp_path / "tokenizer.json"
    train("WordPiece without template").save(str(path))
    roles = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]",
             "mask_token": "[MASK]"}
    path.with_name("tokenizer_config.json").write_text(json.dumps(roles))
    assert load_tokenizer(str(path)).mask_token_id == 4
    path.with_name("tokenizer_config.json").write_text(json.dumps(roles | {role: roles[other]}))
    with pytest.raises(UserError, match=role):
        load_tokenizer(str(path))


def test_the_token_for_unknown_words_is_never_masked_if_it_also_separates_texts(tmp_path):
    train("bytes without template").save(str(tmp_path / "tokenizer.json"))
    roles = dict(pad_token="<pad>", cls_token="<s>", sep_token="</s>", mask_token="<mask>")
    ids = [{*never_masked(PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), unk_token=unknown,
                                                  **roles), "official")} for unknown in ("<unk>", "</s>")]
    assert ids == [{0, 1, 2, 4}] * 2


@pytest.mark.parametrize("pre_tokenizer", [pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel()])
def test_characters_that_a_tokenizer_would_drop_are_unknown_words(tmp_path, pre_tokenizer):
    """BPE models drop what their vocabulary lacks, if they have no token for it or were trained without all bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=ROBERTA, show_progress=False)
    tokenizer.train_from_iterator(sentences(), trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    hf_tokenizer, path = load_tokenizer(str(tmp_path)), tmp_path / "text.txt"
    known = tokenizer.encode("the", add_special_tokens=False).ids
    for saved in (hf_tokenizer, tokenizer_of(tokenizer_record(hf_tokenizer))):
        ids = encoded(saved, "the лиса").ids[1:-1]
        assert ids[:len(known)] == known and ids[-1] == saved.unk_token_id
    one = encoded(hf_tokenizer, "the лиса")
    encoded_rows = EncodedRows([([Window(one.ids, one.type_ids)], 3)], [0])
    assert "лиса" in "".join(text_messages(encoded_rows, 64, hf_tokenizer, ["the лиса"], advice=""))  # in finetuning
    path.write_text("лиса и лиса\n" * 100)
    with pytest.raises(UserError, match="vocabulary.*лиса"):
        prepare_examples(load_documents(str(path), tmp_path), hf_tokenizer, 32, 0, tmp_path)


def test_a_tokenizer_that_can_only_drop_characters_is_refused(tmp_path):
    tokenizer = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.train_from_iterator(sentences(), trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match="bytes"):
        load_tokenizer(str(tmp_path))


CLS, SEP = ("[CLS]", 2), ("[SEP]", 3)
FUNNEL = processors.TemplateProcessing(
    single="[CLS]:2 $A [SEP]", pair="[CLS]:2 $A [SEP] $B:1 [SEP]:1", special_tokens=[CLS, SEP])


@pytest.mark.parametrize("processor", [
    processors.BertProcessing(SEP, CLS), processors.RobertaProcessing(SEP, CLS), FUNNEL,
    processors.Sequence([processors.ByteLevel(), FUNNEL]), None])
def test_special_tokens_and_segment_ids_are_those_of_the_tokenizer(processor):
    tokenizer = Tokenizer(models.WordLevel({"x": 0, "y": 1, "[CLS]": 2, "[SEP]": 3}, unk_token="x"))
    if processor:
        tokenizer.post_processor = processor
    for texts in (["x"], ["x", "y"], ["", "y"], [""]):
        encodings = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        expected = tokenizer.post_process(*encodings)
        found = templates_of(tokenizer)[len(texts)].fill([encoding.ids for encoding in encodings])
        assert found == (expected.ids, expected.type_ids)
