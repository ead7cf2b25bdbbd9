"""Windows of texts that are too long (window_stride; not in the paper)."""


def divided(texts, room, stride):
    """The Encodings of one or two texts in windows of `room` tokens in all, which begin every `stride` tokens: a list
    of lists of them.

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
        parts.append([text, *text.overflowing])
    n = max(map(len, parts))
    return [[windows[i * len(windows) // n] for windows in parts] for i in range(n)]
