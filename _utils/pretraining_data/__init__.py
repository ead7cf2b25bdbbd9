"""From text to batches: sources, vocabulary, examples, loaders."""
from _utils.pretraining_data.batches import pretraining_dataloaders
from _utils.pretraining_data.examples import (
    ELECTRADataProcessor,
    LinePairsProcessor,
    open_examples,
    prepare_examples,
    split_documents,
    split_held_out,
    text_key,
)
from _utils.pretraining_data.sources import Corpus, check_sources, load_documents
from _utils.pretraining_data.vocabulary import from_vocab_file, load_tokenizer, tokenizer_from_json

__all__ = ["Corpus", "ELECTRADataProcessor", "LinePairsProcessor", "check_sources", "from_vocab_file", "load_documents", "load_tokenizer",
           "open_examples", "prepare_examples", "pretraining_dataloaders", "split_documents", "split_held_out", "text_key",
           "tokenizer_from_json"]
