"""The examples of docs/checkpoints.md for other programs, executed as they are in the document."""
import re
from pathlib import Path

import pytest
import torch
from documents import section
from transformers import AutoModelForSequenceClassification, AutoTokenizer

TEXTS = ["One sentence.", "Another sentence about something else", "A third, much longer sentence than both others."]


def examples(heading):
    """The blocks of Python below a heading of docs/checkpoints.md."""
    return re.findall(r"```python\n(.*?)```", section("checkpoints.md", heading), re.S)


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
    found = {}
    exec(examples("8-bit weights")[1], found)
    expected = classify(found["model"])
    torch.testing.assert_close(classify(found["quantized"]), expected, atol=.3 * float(expected.std()), rtol=0)


def test_sentence_embeddings_learn_to_tell_texts_apart(folders):
    """After the training of the example, texts that belong together are more alike than others."""
    embedding, definition, training, _ = examples("Sentence embeddings")
    found = {}
    exec(embedding, found)
    exec(definition, found)
    train = found["train"]
    found["train"] = lambda pairs: train(pairs, steps=40) or found.update(pairs=pairs)
    torch.manual_seed(0)
    exec(training, found)
    with torch.inference_mode():
        one, same, *others = found["embed"]([text for pair in found["pairs"] for text in pair])
    assert one @ same > max(one @ other for other in others) + .3
