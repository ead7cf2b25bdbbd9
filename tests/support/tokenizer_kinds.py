"""Small tokenizers of several kinds, as users make them with the library `tokenizers`."""
import random

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
MARKERS = ["<e1>", "</e1>"]  # added as special tokens; [NUM] is added as a word
WORDS = "the generator replaces some words of a text and the discriminator finds each of them in every sentence".split()
TEXT = "the generator replaces <e1>some words</e1> of [NUM] text"


def sentences(n=400):
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=rng.randint(4, 12))) for _ in range(n)]


def tokens_by_id(tokenizer):
    """The tokens of a transformers tokenizer, as the lines of a vocab.txt."""
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.get)


def _wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer, trainers.WordPieceTrainer(vocab_size=150, special_tokens=BERT, show_progress=False)


def _bytes(post_processor):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.post_processor = post_processor
    return tokenizer, trainers.BpeTrainer(vocab_size=350, special_tokens=ROBERTA, show_progress=False,
                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def _unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    return tokenizer, trainers.UnigramTrainer(
        vocab_size=80, special_tokens=ROBERTA, unk_token="<unk>", show_progress=False
    )


def _words():
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 102), ("[CLS]", 101))  # ids of another vocabulary
    return tokenizer, trainers.WordLevelTrainer(special_tokens=BERT, show_progress=False)


KINDS = {
    "WordPiece without template": _wordpiece,
    "bytes with RoBERTa's template": lambda: _bytes(processors.RobertaProcessing(("</s>", 2), ("<s>", 0))),
    "bytes without template": lambda: _bytes(processors.ByteLevel()),
    "Unigram with a template without <s>": _unigram,
    "words with a template of other ids": _words,
}


def train(kind):
    """A tokenizers.Tokenizer of a kind, without added tokens."""
    tokenizer, trainer = KINDS[kind]()
    tokenizer.train_from_iterator(sentences(), trainer)
    return tokenizer


def save_folder(kind, folder, markers=True):
    """Write a tokenizer to a folder, without the roles of its special tokens. markers: with the added tokens.

    Returns the path.
    """
    fast = PreTrainedTokenizerFast(tokenizer_object=train(kind))
    if markers:
        fast.add_special_tokens({"extra_special_tokens": MARKERS})
        fast.add_tokens(["[NUM]"])
    fast.save_pretrained(folder)
    return str(folder)
