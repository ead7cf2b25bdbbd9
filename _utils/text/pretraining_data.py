"""The data of a pretraining run: its corpora, tokenizer, prepared examples and batches."""
import itertools
from functools import cache
from pathlib import Path

import torch
from datasets import concatenate_datasets

from _utils.errors import as_user_error
from _utils.names import hub_text, without_parts
from _utils.recipes import is_pair
from _utils.text.batches import pretraining_dataloaders
from _utils.text.examples import prepare_examples, split_held_out
from _utils.text.hub_texts import commit_of
from _utils.text.new_tokens import extend_tokenizer
from _utils.text.sources import identity_of, load_documents, real_files
from _utils.text.vocabulary import load_tokenizer


def load_data(c, processes=None):
    """Load tokenizer and DataLoaders of a configuration, preparing the data first if necessary.

    Returns (hf_tokenizer, dls) with fastai DataLoaders of training and held-out examples. A batch is (input_ids (B, L),
    sentA_length (B,)), where sentA_length counts the tokens of [CLS] A [SEP].
    processes: Processes that train together; None: only this one. The main process prepares the data; the others open
    it.
    """
    if processes is None:
        hf_tokenizer, examples = prepare_data(c)
    else:
        of_others = () if processes.is_main else FileNotFoundError
        with as_user_error("The examples that the first process prepared cannot be opened ({error}). Start all "
                           "processes in a folder that their machines share.", of_others):
            hf_tokenizer, examples = processes.broadcast(lambda: prepare_data(c))  # examples as the names of files
    train, held_out = map(concatenate_datasets, zip(*map(split_held_out, examples)))
    dls = pretraining_dataloaders(
        {"train": train, "held_out": held_out},
        hf_tokenizer,
        c.bs,
        c.steps or 1,  # set again when it trains
        c.max_length,
        c.seed,
        c.num_workers,
        pin_memory=torch.cuda.is_available() and c.device != "cpu",
    )
    return hf_tokenizer, dls


def prepare_data(c):
    """Returns (hf_tokenizer, [prepared examples of each corpus]), from the cache if possible.

    In continued pretraining, the tokenizer is that of the trained networks, to which `vocab` may add tokens.
    """
    corpora = corpora_of(c)
    warn_of_shared_files(corpora)
    if is_pair(c.initial_weights) and c.vocab != c.initial_weights:
        hf_tokenizer = extend_tokenizer(load_tokenizer(c.initial_weights), c.vocab)
    else:
        hf_tokenizer = load_tokenizer(c.vocab, corpora, "datasets", c.cased, c.strip_accents)
    options = c.max_length, c.data_seed, "datasets", c.clean, c.long_lines
    # A vocabulary that is trained has been checked for marks before.
    warn_of_marks = isinstance(c.vocab, str) and c.cased is None and c.strip_accents is None
    return hf_tokenizer, [
        prepare_examples(corpus, hf_tokenizer, *options, warn_of_marks=warn_of_marks) for corpus in corpora
    ]


def corpora_of(c):
    """The Corpus of each entry of `datas`."""
    return [load_documents(source, "datasets", c.encoding, c.documents, c.revisions, c.stream) for source in c.datas]


def warn_of_shared_files(corpora):
    """Print a warning if the held-out text of one corpus may be in the training part of another.

    Corpora with the same files in the same order, or copies of the same format, have the same key, and hold out the
    same examples.
    """
    names = {corpus.key: corpus.name for corpus in corpora}.values()
    files_of = cache(lambda name: {identity_of(path): path for path in real_files(name)})
    for name, other in itertools.combinations(names, 2):
        if shared := files_of(name).keys() & files_of(other).keys():
            print(f"Warning: {name!r} and {other!r} in datas share text, such as "
                  f"{min(map(files_of(name).get, shared))!r}. What one of them holds out may be trained on as part of "
                  "the other, which makes held-out metrics too good. Name each text once.")


def with_commits(c):
    """The configuration with the commits of all hub corpora in `revisions`, which a resumed run uses again."""
    commits = {
        without_parts(source): commit_of(source, text, c.revisions, Path("datasets"))
        for source in c.datas if (text := hub_text(source))
    }
    return c.copy_with({"revisions": commits})
