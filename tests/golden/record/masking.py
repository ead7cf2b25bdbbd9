"""Records masks by length, their frequencies, duplicates, and what colliding updates become (F7-F13)."""
import configure_pretraining
import numpy as np
from recording import drawn, frequency, session, stored, tf, vocab_file, write

from pretrain import pretrain_data, pretrain_helpers

LENGTH, RUNS_AT_ONCE = 128, 100
SPECIAL = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
CLS, SEP, MASK, UNK, WORD = 101, 102, 103, 100, 2000


def record():
    values, config = stored("masking.json"), pretraining_config()
    scatter_input = values["scatter_input"]
    yield "masking.json", {
        "mask_prob": config.mask_prob,
        "max_predictions_per_seq": config.max_predictions_per_seq,
        "max_predictions": {
            "L128_p.15": config.max_predictions_per_seq,
            "L512_p.15": pretraining_config(max_seq_length=512).max_predictions_per_seq,
            "L512_p.25": pretraining_config(max_seq_length=512, mask_prob=.25).max_predictions_per_seq,
        },
        "slots_by_length": slots_by_length(config),
        "scatter_update": [scattered(scatter_input, case["updates"], case["positions"])
                           for case in values["scatter_update"]],
        "zero_candidates_[CLS][SEP]": without_candidates(config),
        "per_example": [of_example(config, example, values["N"]) for example in values["per_example"]],
    }


def pretraining_config(**hparams):
    return configure_pretraining.PretrainingConfig("record", "/nowhere", vocab_file=vocab_file(SPECIAL, 30522),
                                                   **hparams)


def masked(config, rows, n_runs=1):
    """Yield Inputs of NumPy arrays after masking rows of token ids, which are padded. n_runs: with new draws."""
    tf.reset_default_graph()
    tf.set_random_seed(1)
    ids, mask = (np.zeros((len(rows), LENGTH), "int32") for _ in range(2))
    for row, tokens in enumerate(rows):
        ids[row, :len(tokens)], mask[row, :len(tokens)] = tokens, 1
    features = {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)}
    inputs = pretrain_data.features_to_inputs({name: tf.constant(values) for name, values in features.items()})
    result = pretrain_helpers.mask(config, inputs, config.mask_prob)
    fetched = {name: tensor for name, tensor in result._asdict().items() if tensor is not None}
    fetched["unmasked"] = pretrain_helpers.unmask(result).input_ids
    with session() as s:
        for _ in range(n_runs):
            yield s.run(fetched)


def slots_by_length(config):
    rows = [[CLS] + [WORD] * (length - 2) + [SEP] for length in range(2, LENGTH + 1)]
    [result] = masked(config, rows)
    return {str(len(row)): int(weights.sum()) for row, weights in zip(rows, result["masked_lm_weights"])}


def scattered(sequence, updates, positions):
    tf.reset_default_graph()
    result, mask = pretrain_helpers.scatter_update(
        tf.constant([sequence]), tf.constant([updates]), tf.constant([positions]))
    with session() as s:
        return dict(zip(("result", "mask"), (values[0] for values in s.run([result, mask]))))


def without_candidates(config):
    """An example without a token that can be masked: its position is out of range (F13)."""
    [result] = masked(config, [[CLS, SEP], [CLS, WORD, SEP]])
    names = {"positions": "masked_lm_positions", "weights": "masked_lm_weights", "ids": "masked_lm_ids"}
    found = {name: result[key][0] for name, key in names.items()}
    found["input_ids"] = result["input_ids"][0, :4]
    return found


def of_example(config, expected, n):
    """What masking an example of a length with a number of candidates n times gives; frequencies depend only on these.
    """
    length, candidates = expected["length"], expected["candidates"]
    special = ([CLS, SEP, SEP] + [MASK] * length)[:length - candidates]
    tokens = np.array(special[:1] + [WORD + i for i in range(candidates)] + special[1:])
    if expected["unk_chosen_prob"] is not None:
        tokens[candidates // 2] = UNK
    is_candidate = ~np.isin(tokens, [CLS, SEP, MASK])
    chosen_runs, slots, unique, shown, wrong, empty = np.zeros(length), [], [], [], [], []
    restored = True
    for result in masked(config, [tokens] * RUNS_AT_ONCE, n // RUNS_AT_ONCE):
        restored &= bool((result["unmasked"][:, :length] == tokens).all())
        for ids, positions, weights in zip(
                result["input_ids"][:, :length], result["masked_lm_positions"], result["masked_lm_weights"] > 0):
            chosen = np.zeros(length, bool)
            chosen[positions[weights]] = True
            is_changed = ids != tokens
            chosen_runs += chosen
            slots.append(weights.sum())
            unique.append(chosen.sum())
            shown.append(is_changed[chosen].sum())
            wrong.append([(is_changed & ~chosen).sum(), (chosen & ~is_candidate).sum(),
                          (is_changed & (ids != MASK)).sum()])
            empty.append(positions[~weights])
    slots, unique, shown = map(np.array, (slots, unique, shown))
    n_slots, probabilities = slots[0], chosen_runs[is_candidate] / n
    outside, special_chosen, others = np.sum(wrong, 0)
    of_unk = chosen_runs[tokens == UNK] / n
    return {
        "length": length,
        "candidates": int(is_candidate.sum()),
        "slots_weight1": [slots.min(), slots.max()],
        "expected_round": int(np.round(length * config.mask_prob)) or 1,
        "mean_unique_positions": drawn(unique.mean(), unique.std() * np.sqrt(2 / n)),
        "frac_runs_with_duplicates": frequency((unique < slots).mean(), n),
        "expected_unique_iid": candidates * (1 - (1 - 1 / candidates) ** n_slots),
        "frac_unique_chosen_shown_as_MASK": frequency(shown.sum() / unique.sum(), unique.sum()),
        "mask_outside_chosen": outside,
        "special_chosen": special_chosen,
        "per_position_choose_prob": [frequency(p, n) for p in (probabilities.min(), probabilities.max())],
        "non_mask_changes": others,
        "unmask_restores": restored,
        "unk_chosen_prob": frequency(of_unk[0], n) if len(of_unk) else None,
        "pad_slots_position": sorted(set(np.concatenate(empty).tolist())),
    }


if __name__ == "__main__":
    write(record)
