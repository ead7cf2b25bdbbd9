"""Google's masking: slots, duplicates, candidates, shares, and what becomes of words that collide (F7-F12)."""
import json

import pytest
import torch

import pretrain
from _utils.config import complete
from _utils.pretraining_data.vocabulary import tokenizer_from_tokens
from pretrain import build_masking, fill_slots, mask_tokens_official, max_predictions

CLS, SEP, MASK, PAD, UNK = 101, 102, 103, 0, 100
RUNS = 3000


@pytest.fixture(scope="module")
def recorded(golden):
    return json.loads((golden / "official/masking.json").read_text())


def example(length, candidates, width=128):
    """[CLS] A [SEP] B [SEP], one [UNK] among its words; as many specials as make `candidates` of `length` tokens."""
    ids = torch.zeros(width, dtype=torch.long)
    ids[:length] = torch.arange(2000, 2000 + length)
    ids[0] = CLS
    ids[length - 1] = SEP
    ids[length // 2:length // 2 + length - candidates - 2] = SEP
    ids[1] = UNK
    return ids


def mask(ids, **kwargs):
    return mask_tokens_official(ids, MASK, 30522, [PAD, CLS, SEP, MASK], **kwargs)


def test_most_masks_of_an_example_are_googles(recorded):
    ours = {f"L{length}_p{share:g}".replace("p0", "p"): max_predictions(length, share)
            for length, share in ((128, .15), (512, .15), (512, .25))}
    assert ours == recorded["max_predictions"]


def test_masks_by_length_are_googles(recorded):
    for length, slots in recorded["slots_by_length"].items():
        ids = example(int(length), max(1, int(length) - 2))
        if int(length) == 2:
            ids[1] = 2000  # the shortest with a candidate
        _, _, times_drawn = mask(ids[None])
        assert int(times_drawn.sum()) == slots, length


def test_frequencies_of_masking_are_googles_for_every_recorded_example(recorded):
    """Both are samples of 3,000: five standard deviations of their difference."""
    torch.manual_seed(0)
    close = lambda share, n: pytest.approx(share, abs=5 * (2 * share * (1 - share) / n) ** .5)
    for theirs in recorded["per_example"]:
        length, n_candidates = theirs["length"], theirs["candidates"]
        ids = example(length, n_candidates).expand(RUNS, -1)
        masked, labels, times_drawn = mask(ids)
        drawn = times_drawn > 0
        n_slots = theirs["slots_weight1"][0]
        assert theirs["slots_weight1"] == [n_slots] * 2 and (times_drawn.sum(1) == n_slots).all()

        is_candidate = (ids != PAD) & (ids != CLS) & (ids != SEP)
        assert int(is_candidate[0].sum()) == n_candidates and not drawn[~is_candidate].any()
        assert labels[drawn].equal(ids[drawn]) and (labels[~drawn] == -100).all()
        distinct = drawn.sum(1).double()
        assert float(distinct.mean()) == pytest.approx(theirs["mean_unique_positions"], abs=5 * (2 / RUNS) ** .5 * float(distinct.std()))
        assert float((times_drawn > 1).any(1).double().mean()) == close(theirs["frac_runs_with_duplicates"], RUNS)

        # Never a random word; a position drawn twice is hidden if either slot says so.
        assert (masked[~drawn] == ids[~drawn]).all() and ((masked[drawn] == MASK) | (masked[drawn] == ids[drawn])).all()
        hidden = float((masked[drawn] == MASK).double().mean())
        assert hidden == close(theirs["frac_unique_chosen_shown_as_MASK"], RUNS * theirs["mean_unique_positions"])
        by_position = drawn[:, is_candidate[0]].double().mean(0)
        lowest, highest = theirs["per_position_choose_prob"]  # of all positions: .05 wide enough for the ends of 124 samples
        assert lowest - .03 < by_position.min() and by_position.max() < highest + .03
        if theirs["unk_chosen_prob"] is not None:
            assert float(drawn[:, 1].double().mean()) == close(theirs["unk_chosen_prob"], RUNS)  # D2


def test_one_slot_hides_with_eighty_five_percent():
    torch.manual_seed(0)
    ids = example(8, 6).expand(20_000, -1)
    masked, _, times_drawn = mask(ids)
    assert (times_drawn.sum(1) == 1).all()
    assert float((masked == MASK).sum() / len(ids)) == pytest.approx(.85, abs=.01)


def test_bert_style_slots_show_random_words_too():
    torch.manual_seed(0)
    ids = example(8, 6).expand(20_000, -1)
    masked, _, drawn = mask(ids, replace_prob=.1, orginal_prob=.1)
    shown, original = masked[drawn > 0], ids[drawn > 0]
    assert float((shown == MASK).float().mean()) == pytest.approx(.8, abs=.01)
    assert float((shown == original).float().mean()) == pytest.approx(.1, abs=.01)


def test_an_example_without_candidates_is_left_alone():
    """Google's code reads another row's tokens there (F13)."""
    ids = torch.tensor([[CLS, SEP, PAD, PAD] * 8, [CLS, 7, 8, SEP] * 8])
    masked, labels, times_drawn = mask(ids)
    assert masked[0].equal(ids[0]) and not times_drawn[0].any() and times_drawn[1].any()


def test_colliding_words_become_the_floor_of_their_mean_as_recorded(recorded):
    """Position 0 is where Google's unused slots point, and there nothing is ever written (F11, F12)."""
    tokens = torch.tensor([recorded["scatter_input"]])
    for case in recorded["scatter_update"]:
        positions = torch.tensor(case["positions"])
        filled = fill_slots(tokens, positions, (positions > 0).float(), torch.tensor(case["updates"]))
        assert filled.tolist() == [case["result"]]


@pytest.mark.parametrize("masking, unk_is_masked", [("official", True), ("bernoulli", False)])
def test_unknown_words_and_padding_are_treated_as_the_masking_says(masking, unk_is_masked):
    """As the configuration puts it together, with [PAD] at another place than 0 (F7, F9, D2)."""
    tokenizer = tokenizer_from_tokens(["[UNK]", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "word"])
    masked_lm = build_masking(complete(pretrain.c.override([f"masking={masking}"])), tokenizer)
    ids = torch.tensor([[1] + [0] * 38 + [2] + [4] * 60]).expand(500, -1)
    torch.manual_seed(0)
    masked, _, chosen = masked_lm.mask_tokens(ids)
    assert not chosen[:, 40:].any() and not chosen[:, 0].any()
    assert (chosen.sum(1) == 6).all() if unk_is_masked else not chosen.any()
    assert (masked == 3).any() == unk_is_masked
