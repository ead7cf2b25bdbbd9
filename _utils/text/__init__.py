"""From text to batches. Reading order of the modules:

sources               an entry of `datas` as a Corpus: texts of the hub (hub_texts, streams), or files, which readers
                      finds and reads; its documents in an Arrow file (prepared_files)
vocabulary            the tokenizer: loaded, or trained on the documents
special_tokens        its special tokens and their template; text_tokenizer, with which all raw text is tokenized
exported_tokenizer    a tokenizer with which transformers reads texts as text_tokenizer does
normalization         warnings where lower case or removed accents destroy words
new_tokens            words added to the vocabulary of trained networks
processors            documents to examples
examples              prepared examples in the cache, built by worker_pool; training and held-out parts; unigram entropy
corruption            sentences with a mistake and random replacements, for the quickstart's tables and measurements
batches               shuffled batches of fixed shape, through hugdatafast_repair
pretraining_data      all of it for the configuration of a run
"""
from _utils.text.batches import pretraining_dataloaders, warn_of_repetition
from _utils.text.examples import (
    example_lengths,
    long_lines_of,
    prepare_examples,
    split_held_out,
    unigram_entropy,
)
from _utils.text.new_tokens import extend_tokenizer
from _utils.text.pretraining_data import load_data, prepare_data
from _utils.text.processors import ELECTRADataProcessor
from _utils.text.sources import Corpus, load_documents
from _utils.text.special_tokens import never_masked, templates_of, text_tokenizer, with_special_tokens
from _utils.text.vocabulary import from_vocab_file, load_tokenizer, tokenizer_of
