"""Official masking against values recorded from Google's code: predictions per example, candidates, shares, collisions
(F7-F12).
"""
import pytest
import torch
from recorded import recorded

import pretrain
from _utils.config import complete
from _utils.networks.slots import Slots, fill_slots
from _utils.text.vocabulary import tokenizer_from_tokens
from pretrain import build_masking, mask_tokens_official, max_slots

CLS, SEP, MASK, PAD, UNK = 101, 102, 103, 0, 100
RUNS = 3000
MASKING = recorded("official/masking.json")


def example(length, candidates, width=128):
    """Ids of [CLS] A [SEP] B [SEP] with one [UNK], padded to `width`: `length` tokens, of which `candidates` may be
    masked.
    """
    ids = torch.zeros(width, dtype=torch.long)
    ids[:length] = torch.arange(2000, 2000 + length)
    ids[0] = CLS
    ids[length - 1] = SEP
    ids[length // 2:length // 2 + length - candidates - 2] = SEP
    ids[1] = UNK
    return ids


def mask(ids, **kwargs):
    return mask_tokens_official(ids, MASK, 30522, [PAD, CLS, SEP, MASK], **kwargs)


def test_maximum_number_of_predictions_matches_google():
    computed = {"L128_p.15": max_slots(128, .15), "L512_p.15": max_slots(512, .15), "L512_p.25": max_slots(512, .25)}
    assert computed == MASKING["max_predictions"]


def test_number_of_predictions_by_length_matches_google():
    for length, n_predictions in MASKING["slots_by_length"].items():
        ids = example(int(length), max(1, int(length) - 2))
        if int(length) == 2:
            ids[1] = 2000  # the only candidate
        masked, _, times_drawn = mask(ids[None], replace_prob=.5)
        assert int(times_drawn.sum()) == n_predictions, length
        assert masked[times_drawn == 0].equal(ids[None][times_drawn == 0]), length


def test_masking_frequencies_match_google_for_every_recorded_example():
    """Both are means of 3,000 samples; the tolerance is five standard deviations of their difference."""
    torch.manual_seed(0)
    close = lambda share, n: pytest.approx(share, abs=5 * (2 * share * (1 - share) / n) ** .5)
    for expected in MASKING["per_example"]:
        length, n_candidates = expected["length"], expected["candidates"]
        ids = example(length, n_candidates).expand(RUNS, -1)
        masked, labels, times_drawn = mask(ids)
        drawn = times_drawn > 0
        n_predictions = expected["slots_weight1"][0]
        assert expected["slots_weight1"] == [n_predictions] * 2 and (times_drawn.sum(1) == n_predictions).all()

        is_candidate = (ids != PAD) & (ids != CLS) & (ids != SEP)
        assert int(is_candidate[0].sum()) == n_candidates and not drawn[~is_candidate].any()
        assert labels[drawn].equal(ids[drawn]) and (labels[~drawn] == -100).all()
        n_distinct = drawn.sum(1).double()
        tolerance = 5 * (2 / RUNS) ** .5 * float(n_distinct.std())
        assert float(n_distinct.mean()) == pytest.approx(expected["mean_unique_positions"], abs=tolerance)
        assert float((times_drawn > 1).any(1).double().mean()) == close(expected["frac_runs_with_duplicates"], RUNS)

        # No random tokens; a position with two predictions shows [MASK] if either of them is masked.
        assert (masked[~drawn] == ids[~drawn]).all() and ((masked[drawn] == MASK) | (masked[drawn] == ids[drawn])).all()
        masked_share = float((masked[drawn] == MASK).double().mean())
        assert masked_share == close(
            expected["frac_unique_chosen_shown_as_MASK"], RUNS * expected["mean_unique_positions"]
        )
        by_position = drawn[:, is_candidate[0]].double().mean(0)
        # extremes over up to 124 positions, which vary more than a mean
        lowest, highest = expected["per_position_choose_prob"]
        assert lowest - .03 < by_position.min() and by_position.max() < highest + .03
        if expected["unk_chosen_prob"] is not None:
            assert float(drawn[:, 1].double().mean()) == close(expected["unk_chosen_prob"], RUNS)  # D2


def test_example_without_candidates_is_not_masked():
    """Google's code would read tokens of another row (F13)."""
    ids = torch.tensor([[CLS, SEP, PAD, PAD] * 8, [CLS, 7, 8, SEP] * 8])
    masked, labels, times_drawn = mask(ids)
    assert masked[0].equal(ids[0]) and not times_drawn[0].any() and times_drawn[1].any()


def test_colliding_samples_become_the_floor_of_their_mean_as_recorded():
    """Unused slots in Google's code point to position 0, which is never written (F11, F12)."""
    tokens = torch.tensor([MASKING["scatter_input"]])
    for case in MASKING["scatter_update"]:
        positions = torch.tensor(case["positions"])
        updates, is_used = torch.tensor(case["updates"]), positions > 0
        filled = fill_slots(tokens, Slots(positions, is_used.float()), updates)
        assert filled.tolist() == [case["result"]]


@pytest.mark.parametrize("masking, unk_is_masked", [("official", True), ("bernoulli", False)])
def test_only_official_masking_masks_unk_and_neither_masks_padding(masking, unk_is_masked):
    """build_masking passes the ids of special tokens correctly, also if [PAD] is not 0 (F7, F9, D2)."""
    tokenizer = tokenizer_from_tokens(["[UNK]", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "word"])
    masked_lm = build_masking(complete(pretrain.c.override([f"masking={masking}"])), tokenizer)
    ids = torch.tensor([[1] + [0] * 38 + [2] + [4] * 60]).expand(500, -1)
    torch.manual_seed(0)
    masked, _, chosen = masked_lm.mask_tokens(ids)
    assert not chosen[:, 40:].any() and not chosen[:, 0].any()
    assert (chosen.sum(1) == 6).all() if unk_is_masked else not chosen.any()
    assert (masked == 3).any() == unk_is_masked
