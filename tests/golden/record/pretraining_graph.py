"""Google's PretrainingModel on a recorded batch, with recorded masks and samples in place of TensorFlow's draws."""
import configure_pretraining
import numpy as np
import run_pretraining
from recording import micro_vocab, replaced, stored, tf

from pretrain import pretrain_helpers

INPUTS = ("input_ids", "input_mask", "segment_ids")
NO_DROPOUT = {"hidden_dropout_prob": 0., "attention_probs_dropout_prob": 0.}


class Graph:
    """The graph of a step without dropout, with the sizes of micro_ckpt.

    batch: {name: array} of INPUTS.   draws: {name: array} with masked_lm_positions, masked_input_ids, sampled_ids.
    hparams: those of Google's code that change.
    model: PretrainingModel.   networks: the transformers in the order in which they are built.   masked: the masked
    inputs.   fake: the discriminator's inputs and labels.   disc: its losses.   slot_logits, disc_logits: of both
    heads.   cloze: outputs of a generator with two towers.
    """
    disc_logits = cloze = None

    def __init__(self, batch, draws, **hparams):
        tf.reset_default_graph()
        self.networks = []
        model_class = run_pretraining.PretrainingModel
        features = {name: tf.constant(batch[name].astype("int32")) for name in INPUTS}
        slots = tf.constant(draws["masked_lm_positions"].astype("int32"))
        with replaced(tf.random, categorical=lambda *_, **__: slots, uniform=lambda *_, **__: shows_mask(draws)), \
                replaced(pretrain_helpers, mask=self.noting("masked", pretrain_helpers.mask),
                         sample_from_softmax=lambda logits, **_: tf.one_hot(draws["sampled_ids"], logits.shape[-1])), \
                replaced(run_pretraining, build_transformer=self.network), \
                replaced(tf.nn, sigmoid_cross_entropy_with_logits=self.cross_entropy(
                    tf.nn.sigmoid_cross_entropy_with_logits)), \
                replaced(model_class, _get_fake_data=self.fake_data(model_class._get_fake_data),
                         _get_discriminator_output=self.noting("disc", model_class._get_discriminator_output),
                         _get_cloze_outputs=self.noting("cloze", model_class._get_cloze_outputs)):
            self.config = configuration(hparams)
            self.model = model_class(self.config, features, True)

    def noting(self, name, function):
        """A function that does the same, and remembers the result as an attribute."""
        def noting(*arguments, **options):
            setattr(self, name, function(*arguments, **options))
            return getattr(self, name)
        return noting

    def network(self, *arguments, _build=run_pretraining.build_transformer, **options):
        self.networks.append(_build(*arguments, **options))
        return self.networks[-1]

    def fake_data(self, function):
        def noting(model, inputs, logits):
            self.slot_logits, self.fake = logits, function(model, inputs, logits)
            return self.fake
        return noting

    def cross_entropy(self, function):
        def noting(logits, labels):
            self.disc_logits = logits
            return function(logits=logits, labels=labels)
        return noting

    def tensors(self):
        """{name: tensor} that are recorded of every step."""
        found = {
            "masked_input_ids": self.masked.input_ids,
            "masked_lm_positions": self.masked.masked_lm_positions,
            "masked_lm_ids": self.masked.masked_lm_ids,
            "masked_lm_weights": self.masked.masked_lm_weights,
            "sampled_ids": tf.argmax(self.fake.sampled_tokens, -1),
            "fake_input_ids": self.fake.inputs.input_ids,
            "labels": self.fake.is_fake_tokens,
            "mlm_loss": self.model.mlm_output.loss,
            "total_loss": self.model.total_loss,
        }
        if self.disc_logits is not None:
            found.update(disc_logits=self.disc_logits, disc_loss=self.disc.loss)
        return found


def configuration(hparams):
    settings = dict(stored("micro_ckpt/config.json")["pretraining_hparams"], **hparams)
    settings["model_hparam_overrides"] = dict(settings["model_hparam_overrides"], **NO_DROPOUT)
    return configure_pretraining.PretrainingConfig("record", "/nowhere", **dict(settings, vocab_file=micro_vocab()))


def shows_mask(draws):
    """Numbers below .85 in the slots that show [MASK]."""
    mask_id = stored("micro_ckpt/config.json")["special_ids"]["[MASK]"]
    rows = np.arange(len(draws["masked_input_ids"]))[:, None]
    shown = draws["masked_input_ids"][rows, draws["masked_lm_positions"]] == mask_id
    return tf.constant(np.where(shown, 0., .9).astype("float32"))
