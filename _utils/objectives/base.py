"""The protocol of objectives, and its base case, ELECTRA's replaced token detection.

A new objective has three places:

1. A file with a subclass of `Objective`, which defines only what differs:

    networks, fresh, load_pair       the networks that are built, or loaded and continued
    changes, build_loss, predicted   what it changes in the model and the loss of Pretrain.ipynb, and in their memory
    first_stage                      a run that comes before
    title, training, fills_masks     how exported networks are described
    token_score                      what the discriminator's logits say about a text

2. An entry in objective_keys.py: KEYS, which says what it means for the keys of a configuration.
3. An entry in registry.py: OBJECTIVES, under the same name.

A model may name the networks that are saved, if these are not its own (`saved_networks`), and counts the predicted
positions and the tokens of a batch before it samples (`counts`), which divide the terms of the loss. The loss has the
arguments of Pretrain.ipynb's ELECTRALoss and returns at most eight terms: the first is logged as gen_loss, the others
under their names, which end with _loss.
Everything else asks the objective, and never for its name.
"""
from typing import NamedTuple

import torch
from torch import nn

from _utils.networks.build import build_network, check_length, initialize_officially, read_config, shared_modules
from _utils.networks.pretrained import load_pair
from _utils.recipes import RECIPES, is_pair, recipe_of
from _utils.text.vocabulary import load_tokenizer

ELECTRA_LINK = "[ELECTRA](https://arxiv.org/abs/2003.10555)"
BY_DETECTION, BY_MASKED_LM = "by replaced token detection", "by masked language modelling"
AS_DISCRIMINATOR = f"as the discriminator of an {ELECTRA_LINK}"
AS_GENERATOR = f"{BY_MASKED_LM}, as the generator of an {ELECTRA_LINK}"


class TrainedNetwork(NamedTuple):
    """A network that an objective trains."""
    key: str  # of the configuration, which replaces it
    part: str  # of a checkpoint, as which it is built and saved
    shape: str  # the attribute of the recipe


GENERATOR = TrainedNetwork("generator", "generator", "generator")
DISCRIMINATOR = TrainedNetwork("discriminator", "discriminator", "discriminator")


class WeightedLoss(nn.Module):
    """A loss function that is the sum of its terms times `loss_weights`.

    It has the arguments and results of Pretrain.ipynb's ELECTRALoss. A subclass defines `terms`, which returns them
    as a tuple, named if they are not gen_loss and disc_loss. n_slots, n_tokens: of the whole batch.
    gen_label_smooth: False, a number, or True for .1.
    """

    def __init__(self, loss_weights=(1., 1.), gen_label_smooth=False):
        super().__init__()
        self.loss_weights = loss_weights
        self.gen_smooth = .1 if gen_label_smooth is True else float(gen_label_smooth)

    def forward(self, pred, targ_ids, counts=None, return_losses=False):
        losses = self.terms(pred, targ_ids, *(counts or self.counts(pred)))
        loss = self.loss_weights[0] * losses[0]
        for weight, other in zip(self.loss_weights[1:], losses[1:], strict=True):
            loss = loss + weight * other
        return (loss, losses) if return_losses else loss

    def counts(self, pred):
        """Those of the model, from its output."""
        return pred.is_mlm_applied.sum(), pred.attention_mask.sum()


class Objective:
    """An objective, here ELECTRA's. c: a configuration."""
    networks = (GENERATOR, DISCRIMINATOR)  # that are trained; the last one is the one to finetune

    def fresh(self, c, vocab_size, pad_token_id=0):
        """The networks with fresh weights, as transformers initializes them."""
        recipe, built = recipe_of(c), []
        for network in self.networks:
            if source := c[network.key]:
                config = read_config(source, vocab_size, pad_token_id)
            else:
                config = getattr(recipe, network.shape).config(vocab_size, pad_token_id, recipe.initializer_range)
            built.append(build_network(network.part, config))
        return built

    def trained(self, c):
        """The trained networks to continue from; None for fresh ones.

        Raises UserError for networks that are too short and, before weights are allocated, for fresh ones that cannot
        be built or tied.
        """
        continued = self.load_pair(c) if is_pair(c.initial_weights) else None
        for network in continued or self._without_weights(c):
            check_length(network, c.max_length, f"the {network.config.model_type} network")
        return continued

    def _without_weights(self, c):
        """The fresh networks without memory for their weights. UserError if they cannot be built or tied."""
        of_vocabulary = 30_522, 0  # of one that is not trained yet
        if isinstance(c.vocab, str):
            hf_tokenizer = load_tokenizer(c.vocab)
            of_vocabulary = len(hf_tokenizer), hf_tokenizer.pad_token_id
        with torch.device("meta"):
            networks = self.fresh(c, *of_vocabulary)
        if len(networks) > 1:
            shared_modules(*networks, c.tying)
        return networks

    def load_pair(self, c):
        """The trained networks of `initial_weights`."""
        return load_pair(c.initial_weights, c.size, c.tying)

    # Training

    changes = ()  # mixins of the notebook's ELECTRAModel, which override what differs; their `c` is the configuration

    def build_model(self, c, hf_tokenizer, electra_model, trained=None):
        """The model of a configuration.

        electra_model: the class ELECTRAModel of the notebook.   trained: networks to continue from; None: fresh ones.
        """
        networks = trained or self.fresh(c, len(hf_tokenizer), hf_tokenizer.pad_token_id)
        generator, discriminator = networks if len(networks) > 1 else (*networks, None)
        model_class = type("Model", (*self.changes, electra_model), {"c": c}) if self.changes else electra_model
        model = model_class(generator, discriminator, hf_tokenizer, c.sampling, c.temperature, c.disallow_correct,
                            c.tying)
        if trained is None and c.initial_weights == "official":
            initialize_officially(model, RECIPES[c.size].initializer_range)
        return model

    def build_loss(self, c, electra_loss):
        """The loss function of a configuration. electra_loss: the class ELECTRALoss of the notebook."""
        return electra_loss((c.gen_weight, c.disc_weight), c.gen_smooth_label, c.disc_smooth_label)

    # A method of (c, processes, pretrain) that first trains or resumes another run, by `pretrain` of its
    # configuration and `processes`, and returns the configuration to train with afterwards.
    first_stage = None

    def predicted(self, mask_prob):
        """Positions whose logits over the vocabulary are kept for the backward pass, as a share of the tokens."""
        return mask_prob

    # Exported networks, and scores of texts

    title = None  # of a network that is not ELECTRA's
    fills_masks = True  # whether an exported masked language model has seen [MASK]
    token_score = None  # what minus the discriminator's logit of a token is, if it is not log-odds
    training = {"discriminator": f"{BY_DETECTION}, {AS_DISCRIMINATOR}",  # phrases after "Pretrained"
                "generator": AS_GENERATOR}
