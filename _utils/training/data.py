"""Tokenizer and batches of a pretraining configuration."""
from datasets import concatenate_datasets

from _utils.objectives.kinds import objective_of
from _utils.text import (
    check_sources,
    extend_tokenizer,
    load_documents,
    load_tokenizer,
    open_examples,
    prepare_examples,
    pretraining_dataloaders,
    split_held_out,
)
from _utils.training.device import choose_device
from _utils.training.processes import Processes


def load_data(c, processes=None):
    """Load tokenizer and DataLoaders of a configuration, preparing the data first if necessary.

    Returns (hf_tokenizer, dls) with fastai DataLoaders of training and held-out examples. A batch is (input_ids (B, L),
    sentA_length (B,)), where sentA_length counts the tokens of [CLS] A [SEP].
    processes: Processes that train together. The main process prepares the data; the others open it.
    """
    processes = processes or Processes(c.device)
    hf_tokenizer, files = processes.broadcast(lambda: prepare_data(c))
    train, held_out = map(concatenate_datasets, zip(*(split_held_out(open_examples(of_corpus)) for of_corpus in files)))
    splits = {"train": train, "held_out": held_out}
    is_on_gpu, steps = choose_device(c.device).type == "cuda", c.steps or 1  # set again when it trains
    dls = pretraining_dataloaders(splits, hf_tokenizer, c.bs, steps, c.max_length, c.seed, c.num_workers, is_on_gpu)
    return hf_tokenizer, dls


def prepare_data(c):
    """Returns (hf_tokenizer, files): for each corpus, the list of Arrow files with its prepared examples."""
    check_sources(c.datas, "datasets", c.encoding)
    corpora = [load_documents(source, "datasets", c.encoding, c.documents, c.revisions) for source in c.datas]
    hf_tokenizer = build_tokenizer(c, corpora)
    # A vocabulary that is trained has been checked for marks before.
    warn_of_marks = isinstance(c.vocab, str) and c.cased is None and c.strip_accents is None
    options = c.max_length, c.data_seed, "datasets", c.clean, c.long_lines
    prepared = [prepare_examples(corpus, hf_tokenizer, *options, warn_of_marks=warn_of_marks) for corpus in corpora]
    return hf_tokenizer, [[file["filename"] for file in examples.cache_files] for examples in prepared]


def build_tokenizer(c, corpora):
    """The tokenizer of a configuration; in continued pretraining that of the trained networks, to which `vocab` may add
    tokens.
    """
    if objective_of(c).adds_tokens(c):
        return extend_tokenizer(load_tokenizer(c.initial_weights), c.vocab, corpora)
    return load_tokenizer(c.vocab, corpora, "datasets", c.cased, c.strip_accents)
