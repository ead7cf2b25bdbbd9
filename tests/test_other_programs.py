"""The examples for other programs, of docs/checkpoints.md and docs/examples/exported.py."""
import re
from pathlib import Path

import pytest
import torch
from documents import section
from exported import embed, train_embeddings
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

TEXTS = ["One sentence.", "Another sentence about something else", "A third, much longer sentence than both others."]


@pytest.fixture
def folders(exported, empty_folder):
    """A working directory with exported/discriminator and exported/classifier, which has three labels."""
    Path("exported").mkdir()
    Path("exported/discriminator").symlink_to(exported / "discriminator")
    tokenizer = AutoTokenizer.from_pretrained(exported / "discriminator")
    torch.manual_seed(0)
    network = AutoModelForSequenceClassification.from_pretrained(exported / "discriminator", num_labels=3)
    for parameter in network.classifier.parameters():
        parameter.data *= 10  # as if it was trained
    network.save_pretrained("exported/classifier")
    tokenizer.save_pretrained("exported/classifier")


def classify(network):
    tokenizer = AutoTokenizer.from_pretrained("exported/classifier")
    with torch.inference_mode():
        return network(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_quantized_weights_give_nearly_the_same_logits(folders):
    [example] = re.findall(r"```python\n(.*?)```", section("checkpoints.md", "8-bit weights"), re.S)
    found = {}
    exec(example, found)
    expected = classify(found["model"])
    torch.testing.assert_close(classify(found["quantized"]), expected, atol=.3 * float(expected.std()), rtol=0)


def test_embeddings_learn_to_tell_texts_apart(folders):
    """After the training, texts that belong together are more alike than others."""
    model = [kind.from_pretrained("exported/discriminator") for kind in (AutoModel, AutoTokenizer)]
    pairs = [("A man is playing a guitar.", "Someone plays the guitar."),
             ("The price of oil fell in March.", "Oil became cheaper in spring.")]
    torch.manual_seed(0)
    train_embeddings(*model, pairs, steps=40)
    with torch.inference_mode():
        one, same, *others = embed(*model, [text for pair in pairs for text in pair])
    assert one @ same > max(one @ other for other in others) + .3
