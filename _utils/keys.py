"""The keys of pretraining, each with its type, default and help, and the types that other keys share."""
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Predicate
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter
from pydantic.fields import FieldInfo

from _utils.loggers import LOGGERS
from _utils.names import COMPRESSIONS, HUB_NOTATION
from _utils.objectives.objective_keys import NAMES
from _utils.recipes import FRESH_WEIGHTS, MAY_MASK_UNKNOWN, RECIPES, TYINGS, is_pair
from _utils.schedules import SCHEDULES


@dataclass(frozen=True)
class Key:
    """A key of a configuration.

    accepts: a type, as for pydantic.   default: its value if it is not set.   help: text for --help.   heading: of the
    section of --help that begins with this key.
    """
    accepts: Any
    default: Any = None
    help: str = ""
    heading: str = ""

    @cached_property
    def adapter(self):
        return TypeAdapter(self.accepts, config=ConfigDict(strict=True))


_CONSTANTS = {bool: "True or False", NoneType: "None"}


def accepted(kind):
    """Describe what a type accepts."""
    if kind in _CONSTANTS:
        return _CONSTANTS[kind]
    if get_origin(kind) is Literal:
        return ", ".join(map(repr, get_args(kind)))
    described = [field.description for field in get_args(kind) if isinstance(field, FieldInfo)]
    return described[0] if described else ", or ".join(map(accepted, get_args(kind)))


def _listed(value):
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return list(value) if isinstance(value, list | tuple) else [value]


def _whole(value):
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_encoding(name):
    try:
        return isinstance("".encode(name), bytes)
    except LookupError:  # unknown, or not of text, such as rot13
        return False


_FILE_NAME = re.compile(r'[^./\\:*?"<>|\x00-\x1f][^/\\:*?"<>|\x00-\x1f]*')


# Types of values. The description of a type appears in error messages and in --help.
def count(minimum=1, maximum=None):
    """An integer in a range; also a float without a fraction, such as steps=1e6."""
    description = f"an integer from {minimum} to {maximum}" if maximum else f"an integer of at least {minimum}"
    return Annotated[int, BeforeValidator(_whole), Field(ge=minimum, le=maximum, description=description)]


def number(description, **bounds):
    """A finite number within pydantic's bounds gt, ge, lt and le."""
    return Annotated[float, Field(allow_inf_nan=False, description=description, **bounds)]


def list_of(item, description):
    """A list, tuple or comma-separated string of items, or a single item."""
    return Annotated[list[item], BeforeValidator(_listed), Field(min_length=1, description=description)]


def file_name(n_bytes):
    """A string with which the names of files can begin, which have at most 255 bytes on most systems."""
    may_be = lambda name: _FILE_NAME.fullmatch(name) and len(name.encode()) <= n_bytes
    return Annotated[str, Predicate(may_be), Field(description=(
        f'a name of at most {n_bytes} bytes without / \\ : * ? " < > | that does not start with a dot'))]


Text = Annotated[str, Field(pattern=r"^[^\x00]+$", description="a string")]  # often a path
FileName = file_name(100)
Device = Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$", description="'cpu', 'cuda' or 'cuda:N'")]
Count, Index, Length, Seed = count(), count(0), count(8, 512), count(0, 2 ** 63 - 1)  # PyTorch takes 64 bits
Positive = number("a number above 0", gt=0)
NonNegative = number("a number of at least 0", ge=0)
Percent = number("a percentage above 0, at most 100", gt=0, le=100)
Schedule = Literal[tuple(SCHEDULES)]
Size = Literal[tuple(RECIPES)]
Precision = Literal["bf16", "fp16", "fp32", None]
Logger = Literal[tuple(LOGGERS)]
_Smoothing = bool | number("a number in [0, 1)", ge=0, lt=1)
_Pair = Annotated[str, Predicate(is_pair), Field(description=(
    "a checkpoint (.pth), a folder with generator/ and discriminator/, the hub id of a discriminator"))]
_Network = (Annotated[dict, Field(description="a dictionary with model_type")]
            | Annotated[str, Field(min_length=1, description="a folder with a config.json, a hub id")] | None)
_Vocab = count(200) | Annotated[str, Field(pattern=r"\D", description="a hub tokenizer, the path of a vocab.txt")]
_Revisions = Annotated[dict[Text, Text], Field(description="{corpus: commit, branch or tag}")]
_True = Annotated[bool, Predicate(bool), Field(description="True")]  # Literal[True] would also accept 1
_Stream = _True | None | count() | Annotated[str, Field(
    pattern=r"^[1-9]\d*(\.\d+)?(e\d{1,2})? characters$", description="a text such as '5e9 characters'")]
_Encoding = Annotated[str, Predicate(_is_encoding), Field(description="an encoding of Python, such as cp1252")]
_Share = number("a number between 0 and 1", gt=0, lt=1)
_Warmup = Index | number("a share of the steps below 1", gt=0, lt=1)
_Milestones = list_of(Percent, "a list of percentages of the steps, each above 0 and at most 100")
_Upload = Text | Annotated[Callable, Field(description="a function of a path")]

PRETRAIN_KEYS = {
    "quickstart": Key(bool, False, (
        "True: a small model on seven books that are part of this repository, minutes on two CPU cores. "
        "Sets size, datas, vocab, base_run_name and adam_bias_correction, unless you set them."),
        heading="What is trained"),
    "recipe": Key(Literal["google", None], None, (
        "'google': masking, initial weights, long lines and text as in Google's code (masking=official, "
        "initial_weights=official, long_lines=truncate, clean=False). None: as in electra_pytorch, but long lines of "
        "your own text are kept.")),
    "size": Key(Size, "small", (
        "The recipe: networks and training settings of 'small', 'base' and 'large' from the paper, 'small++' (Google's "
        "released model), 'mini' (overnight on a CPU core, rotary positions), 'quickstart', 'tiny', or "
        "lmtuners' 'alectra_small', 'electra_small_lmtuners', 'bert_small' ... All: _utils/recipes.py.")),
    "objective": Key(Literal[(*NAMES, None)], None, (
        "'electra', or 'mlm' for masked language modelling with the discriminator's architecture; of the paper's "
        "section 3.2 'two_stage' and 'adversarial', of section 3.5 'electra_15', 'replace_mlm' and "
        "'all_tokens_mlm'; 'electric', which scores texts. None: the recipe's. A file for each: _utils/objectives.")),
    "base_run_name": Key(FileName, "vanilla", "The run and its checkpoints are named <base_run_name>_<seed>."),
    "seed": Key(Seed | None, 11081, (
        "Random seed of data order, masks, samples, dropout and initial weights. None: a random seed, which is "
        "printed. To resume such a run, set the printed seed.")),
    "datas": Key(list_of(Text, "a list of corpus names, hub ids or paths"), ["openwebtext"], (
        "Corpora: 'openwebtext', 'wikipedia', 'bookcorpus', 'prose' (seven books in this repository, for the "
        "quickstart); paths: folders, files or globs of .txt (blank line between documents), .jsonl, .parquet "
        f"or WikiExtractor output, all but .parquet also compressed ({', '.join(COMPRESSIONS)}); or datasets of the "
        f"hub, {HUB_NOTATION}, of which parts may be empty, or left out at the end: "
        "'HuggingFaceFW/fineweb-edu:sample-10BT', 'owner/name::train[:1%]', 'owner/name:::content'. Without them the "
        "split is 'train' and the column 'text'. Google trained ELECTRA-Small-OWT on openwebtext."), heading="Text"),
    "stream": Key(_Stream, None, (
        "Corpora of the hub: None downloads them. A number reads only so many documents of each from the hub's files, "
        "'5e9 characters' documents with so many characters, True all of them; only the examples are kept, about a "
        "third of the text.")),
    "vocab": Key(_Vocab, "google/electra-small-discriminator", (
        "A hub tokenizer, a vocab.txt, a tokenizer.json or its folder, a checkpoint, 'prose' (2,000 tokens, of the "
        "corpus 'prose'), or a number: train a vocabulary of this size. With trained networks: a vocab.txt with words "
        "to add to their vocabulary, or a tokenizer that has their tokens and more.")),
    "cased": Key(bool | None, None, (
        "Whether a vocabulary that is trained, or a vocab.txt, keeps case. None: a trained one does not; a "
        "vocab.txt does if one of its tokens is a capital letter, or more than 1% have one.")),
    "strip_accents": Key(bool | None, None, (
        "Whether the vocabulary removes accents and other marks, also those that belong to Japanese or Hindi "
        "letters. None: a trained one does unless it is cased, as BERT's; a vocab.txt does unless it is cased or "
        "has them, as capital letters above.")),
    "documents": Key(Literal["blank_line", "file", "line"], "blank_line", (
        "Documents in .txt files: 'blank_line' between two of them, or each 'file' or each 'line' is one.")),
    "clean": Key(bool | None, None, (
        "True: drop lines shorter than 80 characters and every \"()\". None: clean only the corpora that "
        "electra_pytorch cleans (D5).")),
    "long_lines": Key(Literal["truncate", "keep", None], None, (
        "The part of a line that does not fit into an example: 'truncate' drops it, as Google's code does (F2); "
        "with 'keep' it begins the next example. None: truncate in openwebtext, wikipedia and bookcorpus, "
        "keep elsewhere.")),
    "encoding": Key(_Encoding, "utf-8", "Encoding of .txt, .jsonl and WikiExtractor files."),
    "revisions": Key(_Revisions, {}, (
        "Versions of hub corpora, by name or id: {'openwebtext': 'COMMIT, branch or tag'}. The others use the commit "
        "with which the run began, or that in datasets/hub_revisions/, the newest one when it was first used. It is "
        "kept with the run.")),
    "data_seed": Key(Seed, 11081, (
        "Random seed of the examples: segment boundaries and short examples. Runs that differ only in `seed` share "
        "the prepared examples.")),
    "max_length": Key(Length | None, None, "Maximum length of an example, in tokens. None: the recipe's."),
    "masking": Key(Literal[tuple(MAY_MASK_UNKNOWN)], "bernoulli", (
        "'bernoulli': each token is chosen independently, as in electra_pytorch (D1). 'official': a fixed number "
        "of positions per example, drawn with replacement, including [UNK]; the token ids of positions drawn twice "
        "are averaged (F7-F12, F19)."), heading="Masking and sampling"),
    "mask_prob": Key(_Share | None, None, "Fraction of the tokens that are masked. None: the recipe's."),
    "electra_mask_style": Key(Literal[True, False, "always", None], None, (
        "Replacement of the chosen tokens. True: 85% [MASK], 15% unchanged. False: BERT's 80% [MASK], 10% random, "
        "10% unchanged. 'always': 100% [MASK] (lmtuners). None: the recipe's; for ELECTRA True.")),
    "sampling": Key(Literal["fp32_gumbel", "fp16_gumbel", "multinomial"], "fp32_gumbel", (
        "Sampling from the generator: 'fp32_gumbel' as in Google's code, 'fp16_gumbel' (noise in half precision, which "
        "draws rare tokens too seldom and, of equally probable ones, low ids too often), or 'multinomial'.")),
    "temperature": Key(Positive, 1., "Sampling temperature: the generator's logits are divided by it."),
    "disallow_correct": Key(bool, False, "True: the generator never samples the original token (F15)."),
    "generator": Key(_Network, None, (
        "Another network with the same vocabulary: a transformers configuration such as {'model_type': 'roberta', "
        "'hidden_size': 256}, a folder with a config.json, or a hub id. None: the recipe's."), heading="Networks"),
    "discriminator": Key(_Network, None, "As for generator. None: the recipe's."),
    "generator_hidden_size": Key(Positive | None, None, (
        "Hidden size of the generator as a fraction of that of the recipe's discriminator. None: the recipe's.")),
    "generator_layers": Key(Positive | None, None, (
        "Layers of the generator as a fraction of those of the recipe's discriminator. None: the recipe's.")),
    "uniform_generator": Key(bool, False, (
        "True: replacements are drawn uniformly from the vocabulary, and no generator is trained (F88).")),
    "two_tower_generator": Key(bool, False, (
        "True: the generator is Electric's, two causal transformers that predict a token from those before and after "
        "it (F98, F101). objective=electric always has it.")),
    "tying": Key(Literal[(*TYINGS, None)], None, (
        "Parameters that both networks share: 'none' (F89), 'tokens', 'embeddings', 'embeddings+projection', "
        "'embeddings+encoder', 'all', which also makes the generator as large as the discriminator (F91), or "
        "'disentangled' (DeBERTaV3's, not part of ELECTRA). None: the recipe's, which is 'embeddings' but for the "
        "quickstart ('all'), or the objective's.")),
    "initial_weights": Key(Literal[FRESH_WEIGHTS] | _Pair, "huggingface", (
        "'huggingface': normal distribution with std 0.02 (quickstart and names that end in tiny: 0.05), as in "
        "electra_pytorch (D3). 'official': as in Google's code, normal distribution truncated at two standard "
        "deviations, and Glorot uniform (F30). For continued pretraining: a checkpoint of this script (.pth), a folder "
        "with generator/ and discriminator/, or the hub id of a discriminator such as "
        "'google/electra-small-discriminator'. It replaces vocab; a checkpoint also replaces size, max_length, "
        "masking, electra_mask_style, mask_prob, tying and the objective, and Google's models set masking='official', "
        "unless you set them. The defaults of lr, steps and warmup_steps change, too (docs/pretraining.md).")),
    "new_generator": Key(bool, False, (
        "True: initial_weights is a discriminator whose generator is missing. A new one is trained on the text, "
        "with the recipe's lr, while the discriminator, which shares its embeddings, stays as it is. Then continue "
        "from the checkpoint of this run.")),
    "gen_weight": Key(NonNegative, 1., "Weight of the generator's loss.", heading="Loss and optimization"),
    "disc_weight": Key(NonNegative | None, None, (
        "Weight of the discriminator's loss. None: the recipe's, or 1 where the second network predicts tokens too.")),
    "gen_smooth_label": Key(_Smoothing, False, (
        "Label smoothing of the generator's loss: a number in [0, 1), or True for 0.1. The logged gen_loss and "
        "gen_perplexity include it, gen_loss_hidden does not.")),
    "disc_smooth_label": Key(_Smoothing, False, (
        "Label smoothing of the discriminator's loss, only of the labels of original tokens, from 0 (D17).")),
    "optimizer": Key(Literal["adam", "lamb", None], None, "'adam' or 'lamb' (lmtuners). None: the recipe's."),
    "adam_bias_correction": Key(bool, False, (
        "False: Adam without bias correction, as in Google's code. True: with bias correction (not in LAMB, which "
        "never has it).")),
    "weight_decay_rate": Key(NonNegative, .01, "Weight decay of everything but biases and LayerNorms."),
    "bs": Key(Count | None, None, "Batch size, in examples. None: the recipe's."),
    "lr": Key(Positive | None, None, (
        "Learning rate by which the schedule is multiplied; the peak of 'original_linear' is lower. None: the "
        "recipe's.")),
    "schedule": Key(Schedule | None, None, (
        "Learning rate schedule. 'original_linear': linear decay that starts together with the warmup, as in "
        "Google's code. 'separate_linear': decay starts after the warmup. 'one_cycle': fastai's. "
        "'adjusted_one_cycle': fastai's with warmup_steps. None: the recipe's; for ELECTRA 'original_linear'.")),
    "lr_decay_power": Key(NonNegative, 1., "Power of the linear schedules' decay (F31)."),
    "steps": Key(Count | None, None, "Number of training steps. None: the recipe's."),
    "warmup_steps": Key(_Warmup | None, None, (
        "Number of warmup steps, or a share of the steps below 1, such as 0.05. None: the recipe's share.")),
    "two_stage_steps": Key(Count | None, None, (
        "Steps of the first of two stages, in which the generator is trained alone. None: half of the steps.")),
    "milestones": Key(_Milestones, [6.25, 12.5, 25., 50., 100.], (
        "In percent of the steps: the model is evaluated on held-out text and saved as "
        "<base_run_name>_<seed>_<percent>%.pth. The last step and stop_at (<base_run_name>_<seed>_step<N>.pth) are "
        "always milestones."),
        heading="Checkpoints and log"),
    "stop_at": Key(Count | None, None, (
        "End the run after this step, with the schedule of all steps. The same command with a larger stop_at, or "
        "without it, continues the run. With objective=two_stage, a step of the second stage.")),
    "resume": Key(bool, True, (
        "True: rerun the same command to resume a run that was stopped or killed. False: archive the earlier run "
        "and start from scratch.")),
    "save_minutes": Key(NonNegative, 10., (
        "Minutes between saves of the checkpoint to resume from, which is also saved at Ctrl-C. 0: save whenever "
        "metrics are logged.")),
    "upload_to": Key(_Upload | None, None, (
        "Where to upload the checkpoint of each milestone: a folder, an fsspec URL such as s3://bucket/run (gs, hf "
        "...), or, in the notebook, a function of its path. None: no upload.")),
    "logger": Key(Logger, "tensorboard", (
        "Where metrics are shown ('neptune': its offline store). metrics.jsonl is always written.")),
    "device": Key(Device | None, None, "'cpu', 'cuda' or 'cuda:1', ...; None: the first GPU, else the CPU.",
        heading="Machine"),
    "precision": Key(Precision, None, (
        "'bf16', 'fp16' (with loss scaling) or 'fp32'. None: fp32 on the CPU, bf16 on GPUs that support it, fp16 "
        "on older ones (compute capability below 8: T4, V100, RTX 20xx).")),
    "micro_batch": Key(Count | None, None, (
        "Examples per forward and backward pass; gradients are accumulated over the batch. None: chosen from the "
        "sizes, the device and, on a GPU, its memory.")),
    "compile": Key(bool, False, (
        "True: compile the training step with torch.compile and, on a GPU, replay it as CUDA graphs (not with "
        "fp16). ELECTRA-Small is then 5 times as fast on an H200. The first compilation takes minutes; "
        "datasets/compiled/ keeps its result for later starts.")),
    "num_workers": Key(Index, 3, (
        "Number of processes that load batches; 0: the training process loads them. Data preparation always "
        "uses all cores.")),
}
