"""How a kind of task is exported to transformers: the part of `Task` that `python -m _utils export_hf` asks."""
from typing import ClassVar

from transformers import AutoModelForSequenceClassification

from _utils.tasks.heads import copy_output_layer
from _utils.text.exported_tokenizer import exported_tokenizer


class Exporting:
    """The base case: the class of transformers for sentences and pairs. settings, in the arguments: of the run."""
    transformers_class: ClassVar = AutoModelForSequenceClassification
    problem_type: ClassVar = None

    @property
    def output_names(self):
        """Names of the outputs of the exported network."""
        return list(self.labels)

    def why_not_exported(self, settings, family):
        """The head for which transformers has no class, or None. family: of the encoder."""
        if settings.get("pooling", "first") != "first":
            return f"pooling={settings['pooling']}"
        # The heads of these two families are a layer, GELU and a layer, on the first token.
        return None if family in ("electra", "roformer") else f"a finetuned {family} model"

    def is_exact_in_half(self, hidden_size):
        """Whether the exported network in 16 bits has the same predictions."""
        return 2 * len(self.output_names) <= hidden_size

    def head_weights(self, weights):
        """{"weight", "bias"} of the output layer, from those of the network's `classifier`."""
        return weights

    def set_head(self, network, layer):
        """Make the head of a network of `transformers_class` compute the linear layer."""
        copy_output_layer(layer, network.classifier, network.base_model.encoder.layer[-1].output.LayerNorm)

    def exported_tokenizer(self, hf_tokenizer, settings):
        """The tokenizer of an exported network, which truncates where training did."""
        return exported_tokenizer(hf_tokenizer, settings["max_length"])

    def exported_config(self, settings):
        """{key: value} of config.json on which predictions depend, beside those that transformers knows."""
        return {"window_stride": settings["window_stride"]} if settings.get("window_stride") else {}
