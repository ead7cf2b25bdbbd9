"""The figures of README and docs/results.md, from the trained model and the raw numbers in results/: `python -m benchmarks.figures`."""
import _utils  # noqa: F401  first, because it sets how PyTorch's threads wait

import torch
from matplotlib.pyplot import cm
from matplotlib.colors import to_hex

from _utils.config import complete
from _utils.networks import load_pair
from _utils.plots import ORANGE, tokens_in_color
from _utils.text import load_tokenizer
from benchmarks.report import RESULTS
from pretrain import ELECTRAModel, build_masking
from pretrain import c as settings

MINI = RESULTS / "mini"
# A sentence, and a seed of its masks and samples with which the trained model finds the replaced tokens.
SENTENCE, SEED = "After the war he returned to the city and worked as a doctor.", 35


@torch.no_grad()
def plot_corruption(sentence=SENTENCE, seed=SEED):
    """A sentence in four lines: its tokens, masked, with the generator's samples, with the discriminator's probabilities of "replaced"."""
    model_folder = str(MINI / "model")
    hf_tokenizer = load_tokenizer(model_folder)
    model = ELECTRAModel(*load_pair(model_folder, "mini", 64), hf_tokenizer).eval()
    masking = build_masking(complete(settings.override(["size=mini", f"vocab={model_folder}/discriminator"])), hf_tokenizer)
    input_ids = hf_tokenizer([sentence], return_tensors="pt")["input_ids"]
    torch.manual_seed(seed)
    inputs, _ = masking.mask(input_ids, torch.tensor([input_ids.shape[1]]))
    prediction = model(*inputs)
    original, masked, generated = (hf_tokenizer.convert_ids_to_tokens(ids[0, 1:-1].tolist())  # without [CLS] and [SEP]
                                   for ids in (input_ids, inputs[0], prediction.generated))
    probabilities = prediction.disc_logits[0, 1:-1].sigmoid().tolist()
    is_hidden = [token == hf_tokenizer.mask_token for token in masked]
    widths = [max(4, *map(len, tokens)) for tokens in zip(original, masked, generated)]
    rows = {"original": [(token, None) for token in original],
            "masked": [(token, ORANGE + "88" if hidden else None) for token, hidden in zip(masked, is_hidden)],
            "generated": [(token, ORANGE + "88" if hidden else None) for token, hidden in zip(generated, is_hidden)],
            "replaced?": [(f"{p:.0%}", to_hex(cm.Reds(.7 * min(1, 2 * p)))) for p in probabilities]}
    figure = tokens_in_color([[(name.ljust(9), None, ""), *((token.center(width), color, "") for (token, color), width in zip(row, widths))]
                              for name, row in rows.items()], columns=11 + sum(widths) + len(widths))
    figure.set_figheight(.7 * figure.get_figheight())
    return figure


if __name__ == "__main__":
    plot_corruption().savefig(MINI / "sentence.png", dpi=160)
