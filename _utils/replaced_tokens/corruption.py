"""Corrupting text with the samples of a frozen generator. Imports pretrain.py, which defines masking and sampling."""
import contextlib

import torch
from datasets import concatenate_datasets
from tqdm import tqdm

import pretrain
from _utils.errors import PlainError
from _utils.networks import check_tied_output, load_with_head, max_positions, weights_digest
from _utils.pretraining_data import check_sources, evenly_spaced, load_documents, prepare_examples, split_held_out
from _utils.pretraining_data.processors import tokenizer_json
from _utils.replaced_tokens.corrupted_text import CorruptedText
from _utils.run_files import find_checkpoint, load_pretraining_checkpoint, versions
from _utils.training.seeds import fork_rng

# Keys of pretrain.py that determine the examples of a corpus and, with the vocabulary, which of them are held out.
TEXT_KEYS = ("encoding", "one_document_per_file", "revisions", "clean", "examples", "max_length", "data_seed")
_BATCH = 64          # examples; the masks and samples depend on it
_MAX_LENGTH = 128    # for generators from other programs
_ROWS = 1024         # examples, at most, unless given
_MASK_STYLE = True   # of pretrain.MASK_STYLES


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
    if c.max_length > max_positions(network):
        raise PlainError(f"{generator!r} has {max_positions(network)} positions, fewer than max_length={c.max_length}. Lower --max_length.")
    examples = _examples(c, hf_tokenizer, part, rows)
    tensors = corrupt(examples, network, hf_tokenizer, c.mask_prob, c.seed)
    if not tensors["is_replaced"].any():
        raise PlainError(f"No token of the {len(examples)} examples was replaced. Raise --rows or --mask_prob.")
    made_by = {"generator": str(generator), "weights_digest": weights_digest(network), "part": part,
               "text": {"datas": list(c.datas), **{key: c[key] for key in TEXT_KEYS}}, "mask_prob": c.mask_prob,
               "electra_mask_style": _MASK_STYLE, "sampling": "fp32_gumbel", "seed": c.seed, "versions": versions()}
    return CorruptedText(**tensors, tokenizer=tokenizer_json(hf_tokenizer), made_by=made_by)


def text_config(name):
    """MyConfig of pretrain.py with the TEXT_KEYS and `datas` of the run that wrote a checkpoint; the defaults for folders and hub ids."""
    run = load_pretraining_checkpoint(find_checkpoint(name))["config"] if name.endswith(".pth") else {"max_length": _MAX_LENGTH}
    return pretrain.c.copy_with({key: run[key] for key in ("datas", *TEXT_KEYS) if key in run})


def _examples(c, hf_tokenizer, part, rows):
    """The examples of the corpora of a configuration, as pretrain.load_data prepares and divides them."""
    if rows is not None and rows < 1:
        raise PlainError(f"Invalid value for rows: {rows}. Use a positive number of examples.")
    corpora = [load_documents(source, "datasets", c.encoding, c.one_document_per_file, c.revisions) for source in c.datas]
    prepared = [prepare_examples(corpus, hf_tokenizer, c.max_length, c.data_seed, "datasets", c.clean) for corpus in corpora]
    examples = concatenate_datasets([split_held_out(of_corpus)[1] if part == "held_out" else of_corpus for of_corpus in prepared])
    if not len(examples):
        raise PlainError(f"pretrain.py holds out no example of {', '.join(c.datas)}, because there are fewer than 20. Add text, or pass "
                         "--all to use all of it.")
    rows = rows or min(_ROWS, len(examples))
    if rows > len(examples):
        raise PlainError(f"The text yields only {len(examples):,} examples, fewer than rows={rows}. Lower --rows, add text, or "
                         "use --all if no discriminator was trained on it.")
    return evenly_spaced(examples, rows)


@torch.inference_mode()
def corrupt(examples, generator, hf_tokenizer, mask_prob, seed):
    """The tensors of CorruptedText, {name: tensor}: `pretrain.mask_tokens` chooses and masks tokens, and `pretrain.sample` replaces them.

    examples: with input_ids and sentA_length.   generator: a masked language model.
    """
    model = pretrain.MaskedLMModel(generator, hf_tokenizer).eval()
    original_ids, lengths = _padded(examples["input_ids"], hf_tokenizer.pad_token_id)
    sentA_lengths = torch.tensor(examples["sentA_length"])
    input_ids, is_masked = original_ids.clone(), torch.zeros_like(original_ids, dtype=torch.bool)
    _, token_type_ids = model.masks_and_segments(original_ids, sentA_lengths)
    with _one_thread(), fork_rng(torch.device("cpu")):
        torch.manual_seed(seed)
        for rows in tqdm(torch.arange(len(lengths)).split(_BATCH), desc="Corrupting", unit="batch", leave=False):
            ids = original_ids[rows]  # (B, L)
            masked_ids, labels, is_chosen = pretrain.mask_tokens(
                ids, hf_tokenizer.mask_token_id, len(hf_tokenizer), hf_tokenizer.all_special_ids, mask_prob,
                *pretrain.MASK_STYLES[_MASK_STYLE])  # (B, L) each
            logits = model(masked_ids, sentA_lengths[rows], is_chosen, labels).mlm_gen_logits  # (M, V)
            input_ids[rows] = ids.masked_scatter(is_chosen, pretrain.sample(logits[:, :len(hf_tokenizer)]))
            is_masked[rows] = is_chosen
    return {"input_ids": input_ids.int(), "original_ids": original_ids.int(), "token_type_ids": token_type_ids.byte(),
            "lengths": lengths.int(), "is_masked": is_masked, "is_replaced": input_ids != original_ids}


def _padded(examples, pad_id):
    """(ids (N, L), lengths (N,)) of lists of token ids."""
    rows = [torch.tensor(ids) for ids in examples]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad_id), torch.tensor([len(row) for row in rows])


@contextlib.contextmanager
def _one_thread():
    """Run PyTorch on one thread: with several, sums are rounded differently, and a sample can change."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
