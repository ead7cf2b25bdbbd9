"""Compare discriminators on the same corrupted text: `python -m _utils replaced_tokens`."""
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from datasets import concatenate_datasets
from scipy.special import logit
from sklearn.metrics import average_precision_score, precision_score, recall_score

import pretrain
from _utils.config import MyConfig
from _utils.errors import UserError
from _utils.keys import PRETRAIN_KEYS
from _utils.names import find_checkpoint
from _utils.networks import check_tied_output, inputs_of, load_with_head, replaced_logits
from _utils.objectives.objective_keys import selected
from _utils.objectives.registry import check_fills_masks, objective_of
from _utils.progress import Progress
from _utils.runs.checkpoints import load_pretraining_checkpoint
from _utils.text import split_held_out
from _utils.text.examples import HELD_OUT_RUNS
from _utils.text.pretraining_data import prepare_data
from _utils.text.sources import real_files
from _utils.training import choose_device

# Keys of pretrain.py that, with the text and the vocabulary, determine the examples and which of them are held out.
TEXT_KEYS = ("encoding", "documents", "revisions", "stream", "clean", "long_lines", "max_length", "data_seed")
_BATCH = 64  # examples; the masks and samples depend on it


def replaced_tokens(checkpoints, *, generator, text, all, rows, max_length, data_seed, mask_prob, seed):
    """Compare discriminators on text in which a generator replaced tokens. Arguments as in `_utils/__main__.py`."""
    c, masked_lm, hf_tokenizer = load_generator(
        generator, text, mask_prob, seed, checkpoints, max_length=max_length, data_seed=data_seed
    )
    networks = {name: load_discriminator(name, hf_tokenizer, c, held_out=not all) for name in checkpoints}
    corrupted = corrupt(examples_of(c, not all, rows), masked_lm, hf_tokenizer, c)
    n_tokens = int(corrupted.is_token.sum())
    print(f"{len(corrupted.is_token):,} examples of {'' if all else 'held-out part of '}{', '.join(text)}, "
          f"{n_tokens:,} tokens, {corrupted.is_masked.sum():,} masked, {corrupted.is_replaced.sum() / n_tokens:.2%} "
          f"replaced by {generator}")
    print("AUC and differences with (standard error)", "",
          compare(corrupted, networks).to_string(float_format=lambda x: f"{x:.4f}", na_rep="-"), sep="\n")


# The corrupted text

class CorruptedText(NamedTuple):
    """Examples in which a generator replaced tokens.

    Shapes: N examples, L tokens of the longest one, padded at the end.
    """
    input_ids: torch.Tensor       # (N, L): with samples of the generator at the masked positions
    token_type_ids: torch.Tensor  # (N, L): 1 for segment B
    # (N, L), bool: the attention mask; a sample can be [PAD], so input_ids do not determine it
    is_token: torch.Tensor
    is_masked: torch.Tensor       # (N, L), bool: the generator sampled a token here
    is_replaced: torch.Tensor     # (N, L), bool: the sample differs from the original token (F17)


def load_generator(generator, sources, mask_prob, seed, checkpoints=(), **settings):
    """(configuration of the text, masks and samples; masked language model; its tokenizer).

    generator: as in `load_with_head`.   sources: a list, as `datas` of pretrain.py.   settings: max_length and
    data_seed of the examples; None: those of the generator's run, like the others in TEXT_KEYS.
    checkpoints: discriminators, of which the first one with a run has these keys if the generator's is not known.
    Raises UserError for an unusable generator.
    """
    loaded = load_with_head(generator, "generator")
    check_fills_masks(generator, loaded)
    check_tied_output(loaded.network, generator)
    runs = (load_pretraining_checkpoint(find_checkpoint(name))["config"] for name in checkpoints if name[-4:] == ".pth")
    run = loaded.run if "max_length" in loaded.run else next(runs, {})  # a folder has no configuration of pretrain.py
    # Not the values in the first cell of pretrain.py, which may be of another run.
    defaults = {key: PRETRAIN_KEYS[key].default for key in TEXT_KEYS} | {"max_length": min(128, loaded.length)}
    of_run = {key: run[key] for key in TEXT_KEYS if key in run}
    given = {key: value for key, value in settings.items() if value is not None}
    tokenizer = {"vocab": generator, "cased": None, "strip_accents": None, "initial_weights": "huggingface"}
    masking = {"mask_prob": mask_prob, "masking": "bernoulli", "electra_mask_style": True, "seed": seed}
    values = defaults | of_run | given | {"datas": sources} | tokenizer | masking
    c = MyConfig(values, {key: PRETRAIN_KEYS[key] for key in values})
    _check_trained_length(loaded, c.max_length, generator)
    return c, loaded.network, loaded.hf_tokenizer


def examples_of(c, held_out, rows):
    """Examples of the corpora of a configuration, prepared and divided as in load_data.

    rows: their number; None: up to 1,024.
    UserError for too little text.
    """
    _, prepared = prepare_data(c)
    examples = concatenate_datasets([split_held_out(of_corpus)[1] if held_out else of_corpus for of_corpus in prepared])
    rows = min(1024, len(examples)) if rows is None else rows
    if not 0 < rows <= len(examples):
        part = "The held-out part of the text (none of fewer than 20 examples)" if held_out else "The text"
        or_all = ", or pass --all if no discriminator was trained on it" if held_out else ""
        raise UserError(f"{part} has {len(examples):,} examples, of which --rows {rows} cannot be taken. Change "
                        f"--rows, add text{or_all}.")
    return examples.select(np.arange(rows) * len(examples) // rows)  # evenly spaced


@torch.inference_mode()
def corrupt(examples, generator, hf_tokenizer, c):
    """The CorruptedText of examples: tokens are masked and replaced as in pretraining with the configuration c.

    examples: with input_ids and sentA_length.   generator: a masked language model.
    Seeds PyTorch and limits it to one thread meanwhile: with several, sums are rounded differently, and a sample can
    change.
    """
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(c.seed)
    model = pretrain.ELECTRAModel(generator, None, hf_tokenizer).eval()
    masking = pretrain.build_masking(c, hf_tokenizer)
    rows = [torch.tensor(ids) for ids in examples["input_ids"]]
    original_ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=hf_tokenizer.pad_token_id)
    sentA_lengths = torch.tensor(examples["sentA_length"])
    batches = [*zip(original_ids.split(_BATCH), sentA_lengths.split(_BATCH))]
    masks, samples = [], []
    for batch in Progress(batches, "Corrupting", unit="batches"):
        masked, _ = masking.mask(*batch)
        output = model(*masked)
        masks.append(output.is_mlm_applied)  # (B, L)
        samples.append(pretrain.sample(output.mlm_gen_logits[:, :len(hf_tokenizer)]))  # (M,)
    torch.set_num_threads(n_threads)
    is_masked = torch.cat(masks)
    input_ids = original_ids.masked_scatter(is_masked, torch.cat(samples))
    is_token = original_ids != hf_tokenizer.pad_token_id
    is_in_segment_b = (torch.arange(is_token.shape[1]) >= sentA_lengths[:, None]) & is_token
    is_replaced = input_ids != original_ids
    return CorruptedText(input_ids, is_in_segment_b.long(), is_token, is_masked, is_replaced)


# Scores of discriminators

def compare(text, networks):
    """DataFrame with the scores of each discriminator, and of a constant prediction, on a CorruptedText.

    networks: {name: discriminator}. AUCs are strings with the standard error in parentheses.
    """
    n = len(text.is_token)
    blocks = (torch.arange(n) * min(n, HELD_OUT_RUNS) // n)[:, None].expand_as(text.is_token)
    labels = [x[text.is_token].numpy() for x in (text.is_replaced, text.is_masked, blocks)]  # (T,) each
    rows = {
        name: replaced_scores(discriminator_logits(network, text, name), *labels) for name, network in networks.items()
    }
    first, *others = rows.values()
    for row in others:
        row["AUC difference"] = row["AUC"] - first["AUC"]
    constant = np.full(len(labels[0]), logit(labels[0].mean()))  # which minimizes the loss
    rows["constant prediction"] = replaced_scores(constant, *labels)
    return pd.DataFrame(rows.values(), rows).map(
        lambda value: with_error(value) if isinstance(value, pd.Series) else value
    )


def load_discriminator(name, of_generator, c, held_out):
    """The discriminator `name`, as in `load_with_head`, for text of the configuration c.

    of_generator: the generator's tokenizer.
    Raises UserError for another vocabulary, too few trained positions, and other outputs than logits of "replaced".
    Prints a warning for one that may have been trained on the text.
    """
    loaded = load_with_head(name, "discriminator")
    network, _, hf_tokenizer, run = loaded
    if objective_of(run).token_score:
        raise UserError(f"{name!r} was trained with objective={selected(run)}, so its outputs are not logits of "
                        "\"replaced\". Choose other discriminators.")
    if differing := of_generator.get_vocab().items() ^ hf_tokenizer.get_vocab().items():
        raise UserError(f"{name!r} has another vocabulary than the generator; the first difference is "
                        f"{min((i, token) for token, i in differing)[1]!r}. Choose networks of one vocabulary.")
    _check_trained_length(loaded, c.max_length, name)
    _warn_of_training_text(name, run, c, held_out)
    return network


def _check_trained_length(loaded, max_length, name):
    """UserError if the examples are longer than those for which a PretrainedNetwork was trained."""
    if max_length > loaded.length:
        raise UserError(f"{name!r} was trained for {loaded.length} tokens, fewer than the {max_length} of an example. "
                        f"Set --max_length to {loaded.length} or less, or choose another network.")


def _warn_of_training_text(name, run, c, held_out):
    """Print a warning if the run of a checkpoint trained on the text. Nothing is known about folders and hub ids."""
    here, there = ({source: real_files(source) for source in sources} for sources in (c.datas, run.get("datas", ())))
    shared = [source for source, files in there.items() if any(files & of_text for of_text in here.values())]
    divided = [source for source in shared if there[source] not in here.values()]
    differing = [f"{key}={run[key]!r} instead of {c[key]!r}" for key in TEXT_KEYS if key in run and run[key] != c[key]]
    if differing:
        reason = f"with {', '.join(differing)}, which holds out other examples"
    elif divided:
        reason = f"of which {', '.join(c.datas)} has a part or more, so that other examples are held out"
    else:
        reason = "and --all uses all of it"
    if shared and (differing or divided or not held_out):
        print(f"Warning: {name!r} was trained on {', '.join(shared)} {reason}. It may have been trained on this text.")


@torch.inference_mode()
def discriminator_logits(network, text, name):
    """Logits of "replaced" for all tokens of a CorruptedText, (T,), NumPy float64.

    Runs on the first GPU, or on the CPU if there is none.
    """
    device = choose_device(None)
    network.to(device).eval()
    # (B, L) each
    batches = [*zip(*(x.to(device).split(_BATCH) for x in (text.input_ids, text.is_token, text.token_type_ids)))]
    logits = [replaced_logits(network(**inputs_of(network, *batch))).float().cpu()
              for batch in Progress(batches, name, unit="batches")]
    return torch.cat(logits)[text.is_token].double().numpy()


def replaced_scores(logits, is_replaced, is_masked, block):
    """{column of `compare`: value} of logits (T,) for labels is_replaced (T,).

    AUCs are as in `auc`; undefined values are NaN.
    is_masked: (T,); "AUC at masks" separates wrong samples from correct ones, at masked positions only.
    block: (T,), as in `auc`.   "loss": mean binary cross-entropy over all tokens, as in training (F22).
    """
    is_flagged = logits > 0  # probability above .5
    return {"AUC": auc(logits, is_replaced, block),
            "AUC difference": np.nan,  # to the first discriminator, filled in by `compare`
            "AUC at masks": auc(logits[is_masked], is_replaced[is_masked], block[is_masked]),
            "average precision": average_precision_score(is_replaced, logits),
            "precision": precision_score(is_replaced, is_flagged, zero_division=np.nan),
            "recall": recall_score(is_replaced, is_flagged),
            "loss": (np.logaddexp(0, logits) - logits * is_replaced).mean()}


def auc(logits, is_positive, block):
    """The AUC of logits (T,): the probability that a positive token has a higher logit than a negative one.

    NaN if one class is missing.
    block: (T,), the index of each token's block of consecutive examples. Returns a Series with a term for each block;
    their sum is the AUC, and `with_error` computes its standard error. The difference to the terms of another
    discriminator on the same tokens are those of the difference of both AUCs. Tokens of an example, and examples of a
    document, are not independent, so the error is that of a sample of blocks (Obuchowski 1997, Nonparametric analysis
    of clustered ROC curve data; with one token per block it is that of DeLong et al. 1988).
    """
    logits = pd.Series(logits)
    own_class = logits.groupby(is_positive)
    if len(own_class) < 2:
        return np.nan
    # those with a lower logit; ties count half
    n_own, others_below = own_class.transform("size"), logits.rank() - own_class.rank()
    # Of each positive token, the share of negatives below it; of each negative token, the share of positives above it.
    share = (others_below / (len(logits) - n_own) - ~is_positive).abs()
    value = share[is_positive].mean()
    influence = ((share - value) / n_own).groupby(block).sum()
    return influence + value / len(influence)


def with_error(terms):
    """The sum of independent terms with its standard error, such as '0.6448 (0.0076)'.

    The error of a single term is NaN.
    """
    return f"{terms.sum():.4f} ({len(terms) ** .5 * terms.std():.4f})"
