"""Token ids of texts, which `window_stride` divides into windows if they are too long."""
from _utils.text.special_tokens import text_tokenizer


def tokenized(rows, names, settings, hf_tokenizer):
    """Yield ([{column: token ids}], number of tokens) for each row of a Dataset.

    The list has one item, or one for each window of texts that are divided. The number is that of the whole texts with
    special tokens.
    names: columns of the text or pair.   settings: of a run.
    """
    tokenizer = text_tokenizer(hf_tokenizer)
    n_special = tokenizer.num_special_tokens_to_add(len(names) == 2)
    room = settings.max_length - n_special
    for batch in rows.iter(1000):
        columns = (tokenizer.encode_batch(batch[name], add_special_tokens=False) for name in names)
        for texts in zip(*columns):
            n_tokens = sum(map(len, texts))
            if settings.window_stride and n_tokens > room:
                windows = divided(texts, room, settings.window_stride)
            else:
                windows = [[text.ids for text in texts]]
            yield [dict(zip(names, window)) for window in windows], n_tokens + n_special


def divided(texts, room, stride):
    """The ids of one or two texts, Encodings, in windows of `room` tokens in all, which begin every `stride` tokens: a
    list of the ids of each text for each window.

    Of a pair, the shorter text has at most half the room, and is divided too if it is longer than that. If one text has
    fewer windows than the other, each of them is beside several.
    """
    rooms = [room]
    if len(texts) == 2:
        shorter = 0 if len(texts[0]) < len(texts[1]) else 1
        used = min(len(texts[shorter]), room // 2)
        rooms = [used, room - used] if shorter == 0 else [room - used, used]
    parts = []
    for text, space in zip(texts, rooms):
        text.truncate(space, stride=space - min(stride, space))  # transformers' stride is the overlap
        parts.append([part.ids for part in (text, *text.overflowing)])
    n = max(map(len, parts))
    return [[windows[i * len(windows) // n] for windows in parts] for i in range(n)]
