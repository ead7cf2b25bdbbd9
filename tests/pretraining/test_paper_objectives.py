"""The objectives that the paper compares with ELECTRA (sections 3.2 and 3.5, appendix F)."""
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
from _utils.networks.fast_electra import FastOutput, masked_slots
from _utils.networks.pretrained import load_with_head
from _utils.objectives.adversarial import AdversarialLoss
from _utils.objectives.all_tokens_mlm import AllTokensMLMLoss
from _utils.objectives.kinds import NAMES, flops_per_token
from _utils.recipes import RECIPES
from _utils.runs.checkpoints import load_checkpoint
from benchmarks.flops import CONVENTIONS, steps_of_equal_compute

run = tiny_pretraining.run
OTHERS = [name for name in NAMES if name not in ("electra", "mlm", "two_stage")]


@pytest.fixture
def batch(small_tokenizer):
    """The inputs of a model: 4 examples of 24 tokens, in which 5 positions are masked, one of them twice."""
    torch.manual_seed(0)
    originals = torch.randint(10, len(small_tokenizer), (4, 24))
    times = torch.zeros_like(originals)
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
    gradient, is_masked = output.disc_logits.grad, batch[2] > 0
    assert (gradient[~is_masked] == 0).all() and (gradient[is_masked] != 0).all()
    bce = F.binary_cross_entropy_with_logits(
        output.disc_logits, output.is_replaced.float(), weight=batch[2].float(), reduction="sum"
    )
    assert disc_loss.item() == pytest.approx(bce.item() / 6, rel=1e-5)


def test_replace_mlm_predicts_the_original_tokens_from_an_input_without_mask(batch, small_tokenizer):
    model, loss_func = build("replace_mlm", small_tokenizer)
    seen = []
    model.discriminator.get_input_embeddings().register_forward_hook(
        lambda module, inputs, output: seen.append(inputs[0])
    )
    output = model(*batch)
    assert not (seen[0] == small_tokenizer.mask_token_id).any() and seen[0].equal(output.generated)
    _, (_, loss) = loss_func(output, batch[-1], model.counts(*batch), return_losses=True)
    everywhere = model.discriminator(output.generated, attention_mask=torch.ones_like(output.generated)).logits
    nll = F.cross_entropy(everywhere.transpose(1, 2), batch[-1], reduction="none")
    assert loss.item() == pytest.approx(((nll * batch[2]).sum() / 6).item(), rel=1e-4)


def mixture(copy_logit, logits, original, shown):
    """The probability that All-Tokens MLM gives to a token as the original, if another, or the same, is shown."""
    pred = FastOutput(None, torch.tensor([[shown]]), torch.tensor([[-copy_logit]]), torch.tensor([[shown != original]]),
                      torch.tensor([[True]]), torch.tensor([[True]]), slots=None, mlm_logits=logits[None])
    return AllTokensMLMLoss().second_loss(pred, torch.tensor([[original]]), 1).neg().exp().item()


def test_all_tokens_mlm_mixes_copying_and_writing():
    logits = torch.tensor([.3, -1.2, 2., .1])
    softmax = logits.softmax(0).tolist()
    # D = 1: the input
    assert [mixture(50., logits, token, shown=2) for token in range(4)] == pytest.approx([0, 0, 1, 0], abs=1e-5)
    # D = 0: the softmax
    assert [mixture(-50., logits, token, shown=2) for token in range(4)] == pytest.approx(softmax, rel=1e-5)
    at_half = [mixture(0., logits, token, shown=2) for token in range(4)]
    assert sum(at_half) == pytest.approx(1, rel=1e-5) and at_half[2] == pytest.approx(.5 + softmax[2] / 2, rel=1e-5)


def test_all_tokens_mlm_is_trained_at_every_token(batch, small_tokenizer):
    model, loss_func = build("all_tokens_mlm", small_tokenizer)
    output = model(*batch)
    output.mlm_logits.retain_grad()
    loss_func(output, batch[-1], model.counts(*batch)).backward()
    assert output.mlm_logits.shape == (96, len(small_tokenizer)) and (output.mlm_logits.grad.abs().sum(1) > 0).all()
    assert model.copy.weight.grad.abs().sum() > 0


def generator_loss(pred, targ_ids):
    """The generator's term of adversarial training."""
    _, (loss, _) = AdversarialLoss(pretrain.ELECTRALoss())(pred, targ_ids, return_losses=True)
    return loss


def test_the_gradient_of_adversarial_training_is_that_of_the_expected_reward():
    """One position, three tokens: REINFORCE's gradient, averaged over all samples, is the exact one, whatever the
    baseline.
    """
    original, disc_logits = 1, [2., -.5, .7]  # of the discriminator, for each token that might be shown
    logits = torch.tensor([[.4, -.3, 1.1]], requires_grad=True)
    baseline = torch.tensor([.8], requires_grad=True)
    rewards = torch.tensor(
        [
            F.binary_cross_entropy_with_logits(torch.tensor(d), torch.tensor(float(token != original))).item()
            for token, d in enumerate(disc_logits)
        ]
    )

    def loss_of(token):
        yes = torch.tensor([[True]])
        pred = FastOutput(
            logits,
            torch.tensor([[token]]),
            torch.tensor([[disc_logits[token]]]),
            torch.tensor([[token != original]]),
            yes,
            yes,
            masked_slots(yes, 1),
            baseline=baseline,
        )
        return generator_loss(pred, torch.tensor([[original]]))

    p = logits.detach().softmax(-1)[0]
    gradients = [torch.autograd.grad(loss_of(token), (logits, baseline)) for token in range(3)]
    expected, = torch.autograd.grad((logits.softmax(-1)[0] * rewards).sum(), logits)
    torch.testing.assert_close(
        sum(q * of_logits for q, (of_logits, _) in zip(p, gradients)), -expected, atol=1e-5, rtol=1e-4
    )
    # The baseline sigmoid(v) learns the discriminator's probability of the correct answer, exp(-reward).
    of_baseline = torch.cat([gradient for _, gradient in gradients])
    torch.testing.assert_close(of_baseline, torch.tensor(.8).sigmoid() - (-rewards).exp(), atol=1e-5, rtol=1e-4)
    # logged
    assert loss_of(0).item() == pytest.approx(F.cross_entropy(logits, torch.tensor([original])).item(), rel=1e-4)


def test_the_mean_of_two_samples_is_no_sample_of_the_adversarial_generator():
    """masking='official' may draw a position twice: the token shown there is that of neither slot (F12)."""
    logits = torch.zeros(3, 4, requires_grad=True)
    yes = torch.tensor([[True, True]])
    times_drawn = torch.tensor([[2, 1]])
    pred = FastOutput(
        logits,
        torch.tensor([[1, 2]]),
        torch.tensor([[0.3, -0.2]]),
        yes,
        yes,
        times_drawn,
        masked_slots(times_drawn, 3),
        baseline=torch.zeros(3),
    )
    generator_loss(pred, torch.tensor([[0, 0]])).backward()
    assert logits.grad[:2].abs().max() == 0 < logits.grad[2].abs().max()


def test_adversarial_training_has_no_gradient_of_maximum_likelihood(batch, small_tokenizer):
    """With a discriminator that is indifferent and a baseline that knows it, nothing is left to learn."""
    model, _ = build("adversarial", small_tokenizer)
    output = model(*batch)
    output.mlm_gen_logits.retain_grad()
    indifferent = output._replace(
        disc_logits=torch.zeros_like(output.disc_logits), baseline=torch.zeros_like(output.baseline)
    )
    generator_loss(indifferent, batch[-1]).backward()
    assert output.mlm_gen_logits.grad.abs().max() < 1e-6


@pytest.mark.parametrize("objective", OTHERS)
def test_objectives_train_resume_and_export(workplace, objective):
    """A run that was stopped and resumed equals one that was not, in micro-batches."""
    settings = [f"objective={objective}", "steps=8", "micro_batch=3", "lr=1e-3", "save_minutes=0"]
    run(*settings, resume=True)
    whole, rows = weights(), metrics()
    run(*settings, "base_run_name=again", "stop_at=3", resume=True)
    run(*settings, "base_run_name=again", resume=True)
    assert equal_weights(whole, weights("again_5"))
    assert ("disc_auc" in rows[-1]) == (objective != "replace_mlm")
    assert rows[-1]["second_mlm_loss" if objective.endswith("mlm") else "disc_loss"] > 0
    assert not {"second_mlm_loss", "disc_loss"} <= rows[-1].keys()
    assert rows[-1]["gen_loss"] < rows[0]["gen_loss"] or objective == "adversarial"
    export_hf("checkpoints/pretrain/mini_5_100.0%.pth", "out")
    parts = {path.name for path in Path("out").iterdir()}
    assert parts == ({"generator"} if "mlm" in objective else {"generator", "discriminator"})
    finetuned = load_with_head("mini_5_100.0%.pth")
    assert finetuned.network.config.hidden_size == RECIPES["tiny"].discriminator.hidden


@pytest.mark.plots
def test_replace_mlm_plots_curves_but_no_replaced_tokens(workplace):
    run("objective=replace_mlm", "steps=2")
    assert {path.stem for path in Path("checkpoints/pretrain/mini_5").glob("*.png")} == {"training", "learning_rate"}


def test_uniform_replacements_train_the_discriminator_alone(workplace):
    learn = run("uniform_generator=True", "steps=4", "lr=1e-3")
    row = metrics()[-1]
    # ln V (F88)
    assert row["gen_loss"] == pytest.approx(torch.tensor(float(learn.model.vocab_size)).log().item(), rel=1e-4)
    assert row["replaced_share"] > .1 and not any(name.startswith("generator") for name in weights())
    export_hf("checkpoints/pretrain/mini_5_100.0%.pth", "out")
    assert {path.name for path in Path("out").iterdir()} == {"discriminator"}
    with pytest.raises(UserError, match="no generator"):
        load_with_head("mini_5_100.0%.pth", "generator")


def test_two_stages_train_one_network_each(workplace):
    settings = ["objective=two_stage", "steps=12", "two_stage_steps=8", "lr=1e-3"]
    learn = run(*settings, resume=True)
    first = load_checkpoint("checkpoints/pretrain/mini_generator_5_100.0%.pth")
    assert first["step"] == 8 and "discriminator_config" not in first
    learned = weights()
    of = lambda part, content: {name: value for name, value in content.items() if name.startswith(f"{part}.")}
    assert equal_weights(of("generator", learned), of("generator", first["model"]))  # frozen
    generator, discriminator = learn.model.generator.base_model, learn.model.discriminator.base_model
    assert not {id(p) for p in generator.parameters()} & {id(p) for p in discriminator.parameters()}
    moved = [
        (p - q).abs().max().item() for p, q in zip(generator.parameters(), discriminator.parameters(), strict=True)
    ]
    assert 0 < max(moved) < .05 and learn.train_iter == 4  # the discriminator started from the generator's weights

    run(*settings, "base_run_name=again", "stop_at=2", resume=True)
    run(*settings, "base_run_name=again", "stop_at=11", resume=True)  # more than the four steps of the second stage
    assert equal_weights(learned, weights("again_5"))
    with pytest.raises(UserError, match="started with .*lr=0.001"):  # the first stage has other settings
        run(*settings[:3], "lr=1e-4", resume=True)


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


def damage_resume_checkpoints(folder):
    for path in folder.glob("resume*"):
        path.write_bytes(path.read_bytes()[:1000])


def delete_second_stage(folder):
    shutil.rmtree(folder.with_name("mini_5"))
    delete_resume_checkpoints(folder)


def test_the_second_stage_needs_only_the_milestone_of_the_first(first_stage):
    folder, settings = first_stage
    shutil.copytree(folder.parent, "before")
    found = []
    for remove in (
        lambda folder: None,
        delete_resume_checkpoints,
        shutil.rmtree,
        damage_resume_checkpoints,
        delete_second_stage,
        lambda folder: (folder / "resume.pth").unlink(),
    ):
        remove(folder)
        run(*settings, resume=True)
        found.append(weights())
        shutil.rmtree(folder.parent)
        shutil.copytree("before", folder.parent)
    assert all(equal_weights(found[0], other) for other in found)


def test_a_first_stage_that_cannot_be_resumed_must_fit_the_second(first_stage):
    folder, settings = first_stage
    delete_resume_checkpoints(folder)
    for changed, named in (
        (["lr=1e-4"], "lr=0.001"),
        (["two_stage_steps=2"], "steps=3"),
        (["max_length=16"], "max_length=32"),
    ):
        with pytest.raises(UserError, match=f"mini_generator_5' was started with .*{named}"):
            run(*settings, *changed, resume=True)
    shutil.rmtree("checkpoints/pretrain/mini_5")
    content = Path("vocab.txt").read_text()
    Path("vocab.txt").write_text(content.replace("guess", "guest"))
    with pytest.raises(UserError, match="The vocabulary changed since .*mini_generator_5_100.0%.pth"):
        run(*settings, resume=True)
    Path("vocab.txt").write_text(content)
    run(*settings, resume=False)  # trains both again
    assert Path("checkpoints/pretrain/aside/mini_generator_5_1/mini_generator_5_100.0%.pth").exists()
    for name in ("mini_generator_5", "mini_5"):
        delete_resume_checkpoints(folder.with_name(name))
    with pytest.raises(UserError, match="The run mini_5 is complete"):  # as of any other run
        run(*settings, resume=True)


@pytest.mark.parametrize(
    "settings, message",
    [
        (["objective=replace_mlm", "disc_smooth_label=True"], "disc_smooth"),
        (["objective=adversarial", "temperature=2"], "temperature"),
        (["two_stage_steps=5"], "two_stage_steps"),
        (["objective=two_stage", "steps=5", "two_stage_steps=5"], "two_stage_steps"),
        (["objective=two_stage", "tying=tokens"], "tying"),
        (["generator_hidden_size=.5", "generator={'model_type': 'bert'}"], "generator_hidden_size"),
    ],
)
def test_settings_without_effect_raise_before_any_work(workplace, settings, message):
    with pytest.raises(UserError, match=message):
        run(*settings)
    assert not Path("datasets").exists()


def test_operations_of_the_objectives():
    """Predicting every token costs most; a frozen generator costs its forward pass."""
    flops = {objective: flops_per_token(RECIPES["mini"], 8192, objective=objective) for objective in NAMES}
    assert flops["mlm"] < flops["electra"] < flops["replace_mlm"] < flops["all_tokens_mlm"]
    assert 1.1 * flops["mlm"] < flops["two_stage"] < flops["mlm"] * 4 / 3
    assert flops["electra_15"] == flops["electra"] == flops["adversarial"]
    steps = {name: steps_of_equal_compute(RECIPES["mini"], RECIPES["mini"], 37_000, 8192, "mlm", **convention)
             for name, convention in CONVENTIONS.items()}
    assert steps["products"] == 45_653  # of the comparison in docs/results.md
    assert (steps["google_sparse"], steps["google"]) == pytest.approx((46_600, 60_300), rel=1e-3)
