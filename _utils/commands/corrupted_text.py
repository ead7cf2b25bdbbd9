"""Text that a generator corrupted, in a file."""
import os
from typing import NamedTuple

import torch
from datasets import concatenate_datasets
from tqdm import tqdm

import pretrain
from _utils.errors import PlainError
from _utils.networks import check_tied_output, load_with_head, weights_digest
from _utils.networks.build import check_length
from _utils.runs import find_checkpoint, load_pretraining_checkpoint, versions
from _utils.runs.checkpoints import has_keys, load_checkpoint
from _utils.text import check_sources, evenly_spaced, load_documents, prepare_examples, split_held_out
from _utils.text.processors import tokenizer_json
from _utils.training.device import fork_rng

# Keys of pretrain.py that determine the examples of a corpus and, with the vocabulary, which of them are held out.
TEXT_KEYS = ("encoding", "one_document_per_file", "revisions", "clean", "examples", "max_length", "data_seed")
_BATCH = 64          # examples; the masks and samples depend on it
_MASK_STYLE = True   # of pretrain.MASK_STYLES


class CorruptedText(NamedTuple):
    """Examples in which a generator replaced tokens. Shapes: N examples, L tokens of the longest one, padded at the end."""
    input_ids: torch.Tensor       # (N, L), int32: with samples of the generator at the masked positions
    original_ids: torch.Tensor    # (N, L), int32: the text
    token_type_ids: torch.Tensor  # (N, L), uint8: 1 for segment B
    lengths: torch.Tensor         # (N,), int32: the attention mask; a sample can be [PAD], so input_ids do not determine it
    is_masked: torch.Tensor       # (N, L), bool: the generator sampled a token here
    is_replaced: torch.Tensor     # (N, L), bool: the sample differs from the original token (F17)
    tokenizer: str                # tokenizers.Tokenizer.to_str
    made_by: dict                 # generator, weights_digest, text, part, settings of text, masks and samples, versions

    def is_token(self):
        """The attention mask, (N, L), bool."""
        return torch.arange(self.input_ids.shape[1]) < self.lengths[:, None]

    def describe(self):
        """Size and origin on one line."""
        n_tokens, made_by = int(self.lengths.sum()), self.made_by
        part = "held-out part of " if made_by["part"] == "held_out" else ""
        return (f"{len(self.lengths):,} examples of {part}{', '.join(made_by['text']['datas'])}, {n_tokens:,} tokens, "
                f"{self.is_masked.sum():,} masked, {self.is_replaced.sum() / n_tokens:.2%} replaced by {made_by['generator']}")


def open_corrupted(path):
    """The CorruptedText in a file. It is untrusted data: no code in it is run. PlainError if it is missing, damaged or of another kind."""
    content = load_checkpoint(path) if os.path.isfile(path) else None
    if not has_keys(content, CorruptedText.__annotations__):
        raise PlainError(f"{str(path)!r} is not a file of corrupted text. Make one with python -m _utils replaced_tokens --make FILE "
                         "--generator CHECKPOINT --text PATH.")
    return CorruptedText(*map(content.get, CorruptedText._fields))


def make_corrupted(generator, sources, part="held_out", rows=None, mask_prob=.15, seed=0, **settings):
    """The CorruptedText of some corpora. The same arguments give the same tensors, with any number of threads.

    generator: as in `load_with_head`; its vocabulary is used.   sources: a list, as `datas` of pretrain.py.
    part: 'held_out', what pretrain.py holds out of these corpora, or 'all'.   rows: number of examples, evenly spread; None: up to 1,024.
    settings: max_length and data_seed of the examples; None: those of the generator's run. TEXT_KEYS has the others of its run.
    Raises PlainError for invalid values, missing text, an unusable generator, or too little text.
    """
    c = text_config(generator).copy_with({"datas": sources, "examples": "electra", "mask_prob": mask_prob, "seed": seed,
                                          **{key: value for key, value in settings.items() if value is not None}})
    check_sources(c.datas)
    network, _, hf_tokenizer = load_with_head(generator, "generator")
    check_tied_output(network, generator)
    check_length(network, c.max_length, repr(generator))
    tensors = corrupt(_examples(c, hf_tokenizer, part, rows), network, hf_tokenizer, c.mask_prob, c.seed)
    made_by = {"generator": str(generator), "weights_digest": weights_digest(network), "part": part,
               "text": {"datas": list(c.datas), **{key: c[key] for key in TEXT_KEYS}}, "mask_prob": c.mask_prob,
               "electra_mask_style": _MASK_STYLE, "sampling": "fp32_gumbel", "seed": c.seed, "versions": versions()}
    return CorruptedText(**tensors, tokenizer=tokenizer_json(hf_tokenizer), made_by=made_by)


def text_config(name):
    """MyConfig of pretrain.py with the TEXT_KEYS and `datas` of the run that wrote a checkpoint; the defaults for folders and hub ids."""
    run = load_pretraining_checkpoint(find_checkpoint(name))["config"] if name.endswith(".pth") else {"max_length": 128}
    return pretrain.c.copy_with({key: run[key] for key in ("datas", *TEXT_KEYS) if key in run})


def _examples(c, hf_tokenizer, part, rows):
    """The examples of the corpora of a configuration, as pretrain.load_data prepares and divides them."""
    corpora = [load_documents(source, "datasets", c.encoding, c.one_document_per_file, c.revisions) for source in c.datas]
    prepared = [prepare_examples(corpus, hf_tokenizer, c.max_length, c.data_seed, "datasets", c.clean) for corpus in corpora]
    examples = concatenate_datasets([split_held_out(of_corpus)[1] if part == "held_out" else of_corpus for of_corpus in prepared])
    rows = min(1024, len(examples)) if rows is None else rows
    if not 0 < rows <= len(examples):
        raise PlainError(f"Invalid value for rows: {rows}. The text yields {len(examples):,} examples; of fewer than 20, none "
                         "are held out. Change --rows, add text, or pass --all if no discriminator was trained on it.")
    return evenly_spaced(examples, rows)


@torch.inference_mode()
def corrupt(examples, generator, hf_tokenizer, mask_prob, seed):
    """The tensors of CorruptedText, {name: tensor}: `pretrain.mask_tokens` chooses and masks tokens, and `pretrain.sample` replaces them.

    examples: with input_ids and sentA_length.   generator: a masked language model.
    PyTorch runs on one thread: with several, sums are rounded differently, and a sample can change.
    """
    model, threads = pretrain.MaskedLMModel(generator, hf_tokenizer).eval(), torch.get_num_threads()
    rows = [torch.tensor(ids) for ids in examples["input_ids"]]
    original_ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=hf_tokenizer.pad_token_id)
    sentA_lengths = torch.tensor(examples["sentA_length"])
    input_ids, is_masked = original_ids.clone(), torch.zeros_like(original_ids, dtype=torch.bool)
    torch.set_num_threads(1)
    try:
        with fork_rng(torch.device("cpu")):
            torch.manual_seed(seed)
            for at in tqdm(torch.arange(len(rows)).split(_BATCH), desc="Corrupting", unit="batch", leave=False):
                ids = original_ids[at]  # (B, L)
                masked_ids, labels, is_chosen = pretrain.mask_tokens(
                    ids, hf_tokenizer.mask_token_id, len(hf_tokenizer), hf_tokenizer.all_special_ids, mask_prob,
                    *pretrain.MASK_STYLES[_MASK_STYLE])  # (B, L) each
                logits = model(masked_ids, sentA_lengths[at], is_chosen, labels).mlm_gen_logits  # (M, V)
                input_ids[at] = ids.masked_scatter(is_chosen, pretrain.sample(logits[:, :len(hf_tokenizer)]))
                is_masked[at] = is_chosen
    finally:
        torch.set_num_threads(threads)
    _, token_type_ids = model.masks_and_segments(original_ids, sentA_lengths)
    return {"input_ids": input_ids.int(), "original_ids": original_ids.int(), "token_type_ids": token_type_ids.byte(),
            "lengths": torch.tensor([len(row) for row in rows]).int(), "is_masked": is_masked, "is_replaced": input_ids != original_ids}
