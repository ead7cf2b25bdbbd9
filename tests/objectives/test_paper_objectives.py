"""The objectives that the paper compares with ELECTRA (sections 3.2 and 3.5, appendix F)."""
import math
import shutil
from pathlib import Path

import pytest
import tiny_pretraining
import torch
import torch.nn.functional as F
from tiny_pretraining import equal_weights, metrics, weights

import pretrain
from _utils.commands.export_hf import export_hf
from _utils.config import complete
from _utils.errors import UserError
from _utils.networks import PARTS, masked_slots
from _utils.networks.pretrained import load_with_head
from _utils.objectives.adversarial import AdversarialLoss
from _utils.objectives.all_tokens_mlm import AllTokensMLMLoss
from _utils.objectives.objective_keys import NAMES
from _utils.recipes import RECIPES
from _utils.runs.checkpoints import load_checkpoint
from benchmarks.flops import flops_per_token

run = tiny_pretraining.run
OTHERS = [name for name in NAMES if name not in ("electra", "mlm", "two_stage")]


@pytest.fixture
def batch(small_tokenizer):
    """The inputs of a model: 4 examples of 24 tokens, in which 5 positions are masked, one of them twice."""
    torch.manual_seed(0)
    originals, times = torch.randint(10, len(small_tokenizer), (4, 24)), torch.zeros(4, 24, dtype=torch.long)
    times[[0, 1, 2, 3, 3], [3, 7, 11, 2, 20]] = torch.tensor([1, 1, 2, 1, 1])
    masked = originals.masked_fill(times > 0, small_tokenizer.mask_token_id)
    return masked, torch.full((4,), 24), times, originals.masked_fill(times == 0, -100)


def build(objective, hf_tokenizer, *settings):
    c = complete(pretrain.c.override(["size=tiny", f"objective={objective}", *settings]))
    torch.manual_seed(0)
    return pretrain.build_model(c, hf_tokenizer).eval(), pretrain.build_loss(c)


def test_electra_15_has_no_gradient_at_positions_that_are_not_masked(batch, small_tokenizer):
    model, loss_func = build("electra_15", small_tokenizer)
    output = model(*batch)
    output.disc_logits.retain_grad()
    loss, (_, disc_loss) = loss_func(output, batch[-1], model.counts(*batch), return_losses=True)
    loss.backward()
    assert ((output.disc_logits.grad != 0) == (batch[2] > 0)).all()
    bce = F.binary_cross_entropy_with_logits(output.disc_logits, output.is_replaced.float(), weight=batch[2].float(),
                                             reduction="sum")
    assert disc_loss.item() == pytest.approx(bce.item() / 6, rel=1e-5)


def test_replace_mlm_predicts_the_original_tokens_from_an_input_without_mask(batch, small_tokenizer):
    model, loss_func = build("replace_mlm", small_tokenizer)
    output = model(*batch)
    assert not (output.generated == small_tokenizer.mask_token_id).any()
    assert model.discriminator.get_output_embeddings().weight is model.discriminator.get_input_embeddings().weight
    _, (_, loss) = loss_func(output, batch[-1], model.counts(*batch), return_losses=True)
    everywhere = model.discriminator(output.generated, attention_mask=torch.ones_like(output.generated)).logits
    nll = F.cross_entropy(everywhere.transpose(1, 2), batch[-1], reduction="none")
    assert loss.item() == pytest.approx(((nll * batch[2]).sum() / 6).item(), rel=1e-4)


@pytest.mark.parametrize("objective", ["electra", "mlm", "replace_mlm", "all_tokens_mlm"])
def test_label_smoothing_without_a_number_is_that_of_a_tenth(batch, small_tokenizer, objective):
    model, loss_func = build(objective, small_tokenizer, "gen_smooth_label=True")
    output = model(*batch)
    _, losses = loss_func(output, batch[-1], model.counts(*batch), return_losses=True)
    labels = batch[-1].flatten()[output.slots.positions]
    torch.testing.assert_close(losses[0], F.cross_entropy(output.mlm_gen_logits, labels, label_smoothing=.1))


def mixture(copy_logit, logits, original, shown):
    """The probability that All-Tokens MLM gives to a token as the original, if another, or the same, is shown."""
    pred = pretrain.ELECTRAOutput(None, torch.tensor([[shown]]), torch.tensor([[-copy_logit]]),
                                  torch.tensor([[shown != original]]), torch.tensor([[True]]), torch.tensor([[True]]),
                                  slots=None, extra=logits[None])
    return AllTokensMLMLoss().second_loss(pred, torch.tensor([[original]]), 1).neg().exp().item()


@pytest.mark.parametrize("copy_logit, share", [(50., 1.), (-50., 0.), (0., .5)])
def test_all_tokens_mlm_mixes_copying_and_writing(copy_logit, share):
    """The input with probability D, and otherwise a sample of the softmax."""
    logits = torch.tensor([.3, -1.2, 2., .1])
    expected = (1 - share) * logits.softmax(0) + share * torch.tensor([0., 0., 1., 0.])
    found = [mixture(copy_logit, logits, token, shown=2) for token in range(4)]
    assert found == pytest.approx(expected.tolist(), abs=1e-5)


def generator_loss(pred, targ_ids):
    """The generator's term of adversarial training."""
    _, (loss, _) = AdversarialLoss(pretrain.ELECTRALoss())(pred, targ_ids, return_losses=True)
    return loss


def prediction(logits, shown, disc_logits, original, times_drawn, baseline):
    """The output of a model for one text whose tokens are all masked."""
    shown, times_drawn = torch.tensor([shown]), torch.tensor([times_drawn])
    is_replaced, slots = shown != torch.tensor([original]), masked_slots(times_drawn)
    return pretrain.ELECTRAOutput(logits, shown, torch.tensor([disc_logits]), is_replaced, times_drawn > 0, times_drawn,
                                  slots, extra=baseline)


def test_the_gradient_of_adversarial_training_is_that_of_the_expected_reward():
    """One position, three tokens: REINFORCE's gradient, averaged over all samples, is the exact one, whatever the
    baseline.
    """
    original, disc_logits = 1, torch.tensor([2., -.5, .7])  # of the discriminator, for each token that might be shown
    logits = torch.tensor([[.4, -.3, 1.1]], requires_grad=True)
    baseline = torch.tensor([.8], requires_grad=True)
    rewards = F.binary_cross_entropy_with_logits(disc_logits, torch.tensor([1., 0., 1.]), reduction="none")

    def loss_of(token):
        pred = prediction(logits, [token], [disc_logits[token]], [original], [1], baseline)
        return generator_loss(pred, torch.tensor([[original]]))
    of_logits, of_baseline = zip(*(torch.autograd.grad(loss_of(token), (logits, baseline)) for token in range(3)))
    p = logits.softmax(-1)[0]
    expected, = torch.autograd.grad((p * rewards).sum(), logits)
    found = sum(q * gradient for q, gradient in zip(p.detach(), of_logits))
    torch.testing.assert_close(found, -expected, atol=1e-5, rtol=1e-4)
    # That of one sample has the reward minus the baseline -log(sigmoid(v)).
    advantage, of_log_p = rewards[0] + F.logsigmoid(baseline), torch.tensor([1., 0., 0.]) - p
    torch.testing.assert_close(of_logits[0][0], -advantage * of_log_p, atol=1e-5, rtol=1e-4)
    # The baseline sigmoid(v) learns the discriminator's probability of the correct answer, exp(-reward).
    found = torch.cat(of_baseline)
    torch.testing.assert_close(found, torch.tensor(.8).sigmoid() - (-rewards).exp(), atol=1e-5, rtol=1e-4)
    # logged
    assert loss_of(0).item() == pytest.approx(F.cross_entropy(logits, torch.tensor([original])).item(), rel=1e-4)


def test_the_baseline_of_adversarial_training_does_not_train_the_generator(batch, small_tokenizer):
    model, _ = build("adversarial", small_tokenizer)
    model(*batch).extra.sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is not None] == ["baseline.weight"]


def test_the_mean_of_two_samples_is_no_sample_of_the_adversarial_generator():
    """masking='official' may draw a position twice: the token shown there is that of neither slot (F12)."""
    logits = torch.zeros(3, 4, requires_grad=True)
    pred = prediction(logits, [1, 2], [.3, -.2], [0, 0], [2, 1], torch.zeros(3))
    generator_loss(pred, torch.tensor([[0, 0]])).backward()
    assert logits.grad[:2].abs().max() == 0 < logits.grad[2].abs().max()


@pytest.mark.parametrize("objective", OTHERS)
def test_objectives_train_resume_and_export(workplace, objective):
    """A run that was stopped and resumed equals one that was not, in micro-batches."""
    settings = [f"objective={objective}", "steps=8", "micro_batch=3", "lr=1e-3", "save_minutes=0"]
    run(*settings, resume=True)
    whole, (first, *_, last) = weights(), metrics()
    run(*settings, "base_run_name=again", "stop_at=3", resume=True)
    run(*settings, "base_run_name=again", resume=True)
    assert equal_weights(whole, weights("again_5"))
    is_mlm = objective.endswith("mlm")
    assert last["second_mlm_loss" if is_mlm else "disc_loss"] > 0 and ("disc_loss" in last) != is_mlm
    assert last["gen_loss"] < first["gen_loss"] or objective == "adversarial"
    export_hf("checkpoints/pretrain/mini_5_100.0%.pth", "out")
    parts = {"electric": {"discriminator"}}.get(objective, {"generator"} if is_mlm else {*PARTS})
    assert {path.name for path in Path("out").iterdir()} == parts
    finetuned = load_with_head("mini_5_100.0%.pth")
    assert finetuned.network.config.hidden_size == RECIPES["tiny"].discriminator.hidden


@pytest.mark.plots
def test_replace_mlm_plots_curves_but_no_replaced_tokens(workplace):
    run("objective=replace_mlm", "steps=2")
    assert {path.stem for path in Path("checkpoints/pretrain/mini_5").glob("*.png")} == {"training", "learning_rate"}


def test_uniform_replacements_train_the_discriminator_alone(workplace):
    learn = run("uniform_generator=True", "steps=4", "lr=1e-3")
    row = metrics()[-1]
    assert row["gen_loss"] == pytest.approx(math.log(learn.model.generator.config.vocab_size), rel=1e-4)  # F88
    assert row["replaced_share"] > .1 and not any(name.startswith("generator") for name in weights())
    export_hf("checkpoints/pretrain/mini_5_100.0%.pth", "out")
    assert {path.name for path in Path("out").iterdir()} == {"discriminator"}
    with pytest.raises(UserError, match="mini_5_100.0%.pth"):
        load_with_head("mini_5_100.0%.pth", "generator")


def test_uniform_replacements_need_no_generator_of_the_discriminators_family(workplace):
    run("uniform_generator=True", "steps=1",
        "discriminator={'model_type': 'distilbert', 'dim': 32, 'n_layers': 1, 'n_heads': 2, 'hidden_dim': 64}")
    assert any(name.startswith("discriminator") for name in weights())


def test_two_stages_train_one_network_each(workplace):
    settings = ["objective=two_stage", "steps=12", "two_stage_steps=8", "warmup_steps=3", "lr=1e-3"]
    learn = run(*settings, resume=True)
    assert [row["lr"] for row in metrics()] == pytest.approx([0, .75e-3, .5e-3, .25e-3])  # one step of warmup
    first, learned = load_checkpoint("checkpoints/pretrain/mini_generator_5_100.0%.pth"), weights()
    assert first["step"] == 8 and "discriminator_config" not in first and learn.train_iter == 4
    assert all(learned[name].equal(value) for name, value in first["model"].items())  # the generator is frozen
    generator, discriminator = learn.model.generator.base_model, learn.model.discriminator.base_model
    moved = [(p - q).abs().max().item()
             for p, q in zip(generator.parameters(), discriminator.parameters(), strict=True)]
    assert 0 < max(moved) < .05  # the discriminator started from the generator's weights

    run(*settings, "base_run_name=again", "stop_at=2", resume=True)
    run(*settings, "base_run_name=again", "stop_at=11", resume=True)  # more than the four steps of the second stage
    assert equal_weights(learned, weights("again_5"))


def test_the_new_head_of_the_second_stage_is_initialized_officially_with_the_first(workplace):
    settings = ["objective=two_stage", "steps=4", "two_stage_steps=3", "lr=1e-9"]
    largest = [run(*settings, *more, f"base_run_name=run{len(more)}").model.discriminator.discriminator_predictions
               .dense_prediction.weight.abs().max() for more in ([], ["initial_weights=official"])]
    glorot = (6 / (128 + 1)) ** .5  # the limit of the uniform distribution (F30)
    assert .9 * glorot < largest[1] < glorot and largest[0] != largest[1]


@pytest.fixture
def first_stage(workplace):
    """Folder of the complete first of two stages, of which the second has trained one of two steps; and the settings of
    the run.
    """
    settings = ["objective=two_stage", "steps=5", "two_stage_steps=3", "lr=1e-3"]
    run(*settings, "stop_at=1")
    return Path("checkpoints/pretrain/mini_generator_5"), settings


def delete_resume_checkpoints(folder):
    for path in folder.glob("resume*"):
        path.unlink()


def test_the_second_stage_needs_only_the_milestone_of_the_first(first_stage):
    folder, settings = first_stage
    shutil.copytree(folder.parent, "before")
    found = []
    for remove in (lambda folder: None, delete_resume_checkpoints, shutil.rmtree,
                   lambda folder: (folder / "resume.pth").write_bytes(b"damaged"),
                   lambda folder: shutil.rmtree(folder.with_name("mini_5"))):
        remove(folder)
        run(*settings, resume=True)
        found.append(weights())
        shutil.rmtree(folder.parent)
        shutil.copytree("before", folder.parent)
    assert all(equal_weights(found[0], other) for other in found)


def test_a_first_stage_that_cannot_be_resumed_must_fit_the_second(first_stage):
    folder, settings = first_stage
    delete_resume_checkpoints(folder)
    for changed, named in ("lr=1e-4", "lr=0.001"), ("two_stage_steps=2", "steps=3"):
        with pytest.raises(UserError, match=f"mini_generator_5.*{named}"):
            run(*settings, changed, resume=True)
    run(*settings, resume=False)  # trains both again
    assert Path("checkpoints/pretrain/aside/mini_generator_5_1/mini_generator_5_100.0%.pth").exists()


def test_the_second_stage_of_an_earlier_run_does_not_continue_after_a_new_first_stage(first_stage, monkeypatch):
    folder, settings = first_stage

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(pretrain, "build_learner", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(*settings, resume=False)
    assert not folder.with_name("mini_5").exists()


def test_operations_of_the_objectives():
    """Predicting every token costs most; a frozen generator costs its forward pass."""
    flops = [flops_per_token(RECIPES["mini"], 8192, objective=name)
             for name in ("mlm", "two_stage", "electra", "replace_mlm", "all_tokens_mlm", "electric")]
    assert flops == sorted(set(flops))
