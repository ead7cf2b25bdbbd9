"""Predictions of folders that export_hf wrote, with transformers alone. They are those of finetune.py.

Copy what you need. `load` returns the model and the tokenizer that the other functions take. The tokenizer truncates at
the max_length of the training.
"""
import itertools

import torch
import transformers
from tokenizers import Regex, pre_tokenizers
from transformers import AutoConfig, AutoTokenizer


def load(folder):
    """(model, tokenizer) of a folder. Its configuration has the name of the model's class."""
    [name] = AutoConfig.from_pretrained(folder).architectures
    model = getattr(transformers, name).from_pretrained(folder, dtype="float32")
    return model.eval(), AutoTokenizer.from_pretrained(folder)


# Texts and pairs

@torch.no_grad()
def probabilities(model, tokenizer, text, second=None):
    """The probability of each label of a text or a pair, in the order of config.id2label; for regression the score."""
    if second is not None:
        inputs = tokenizer.pad([encode_pair(tokenizer, text, second)], return_tensors="pt")
    elif getattr(model.config, "window_stride", None):
        inputs = windows_of(text, tokenizer, model.config.window_stride)
    else:
        inputs = tokenizer(text, truncation=True, return_tensors="pt")
    logits = model(**inputs).logits
    if model.config.problem_type == "regression":
        return logits.mean(0)
    if model.config.problem_type == "multi_label_classification":
        return logits.sigmoid().mean(0)
    return logits.softmax(-1).mean(0)


def predict(model, tokenizer, text, second=None):
    """The label of a text or a pair; with several labels per text their set; for regression the score."""
    found, config = probabilities(model, tokenizer, text, second).tolist(), model.config
    if config.problem_type == "regression":
        return found[0]
    if config.problem_type == "multi_label_classification":
        return {config.id2label[i] for i, probability in enumerate(found) if probability >= config.threshold}
    return config.id2label[found.index(max(found))]


def encode_pair(tokenizer, first, second):
    """The inputs of a pair. If it is too long, the longer text loses tokens, at equal length the second one (F41).

    Truncation by transformers may keep one token more of the second text.
    """
    backend = tokenizer.backend_tokenizer
    first, second = (backend.encode(text, add_special_tokens=False) for text in (first, second))
    room = tokenizer.model_max_length - backend.num_special_tokens_to_add(True)
    n = min(len(second), max(room - len(first), room // 2))
    first.truncate(room - n)
    second.truncate(n)
    pair = backend.post_process(first, second if n else None)
    return {"input_ids": pair.ids, "token_type_ids": pair.type_ids}


def windows_of(text, tokenizer, window_stride):
    """The inputs of the windows of a long text, over which training with window_stride takes the mean."""
    overlap = tokenizer.model_max_length - tokenizer.num_special_tokens_to_add() - window_stride
    windows = tokenizer(text, truncation=True, stride=max(0, overlap), return_overflowing_tokens=True, padding=True,
                        return_tensors="pt")
    del windows["overflow_to_sample_mapping"]
    return windows


# Words and spans

@torch.no_grad()
def tag(model, tokenizer, words):
    """The label of each word of a sentence, which is that of its first token.

    A long sentence is divided between words.
    """
    n_special = tokenizer.num_special_tokens_to_add()  # 2, or 1 for a tokenizer without [SEP]
    room, windows, tags = tokenizer.model_max_length - n_special, [], []
    for word in words:
        ids = tokenizer(f" {word}", add_special_tokens=False)["input_ids"][:room]
        ids = ids or [tokenizer.unk_token_id]  # of a control character
        if not windows or len(ids) + sum(map(len, windows[-1])) > room:
            windows.append([])
        windows[-1].append(ids)
    for window in windows:
        n_tokens = n_special + sum(map(len, window))
        ids = [tokenizer.cls_token_id, *itertools.chain(*window), tokenizer.sep_token_id][:n_tokens]
        first_tokens = [*itertools.accumulate(map(len, window[:-1]), initial=1)]
        logits = model(torch.tensor([ids])).logits[0, first_tokens]
        tags += [model.config.id2label[label] for label in logits.argmax(-1).tolist()]
    return tags


WORDS = pre_tokenizers.Sequence([  # of spans, as in training
    pre_tokenizers.BertPreTokenizer(),
    pre_tokenizers.Split(Regex(r"\p{Han}|\p{Hiragana}+|[\p{Katakana}ー]+"), "isolated")])


def spans(model, tokenizer, text):
    """[[start, end, label]] of the spans in a text, in characters. Needs the package seqeval."""
    from seqeval.metrics.sequence_labeling import get_entities
    words = WORDS.pre_tokenize_str(text)
    entities = get_entities(tag(model, tokenizer, [word for word, _ in words]))
    return [[words[first][1][0], words[last][1][1], label] for label, first, last in entities]


# Choices

@torch.no_grad()
def choose(model, tokenizer, text, choices):
    """The probability of each choice. Of two texts, the second one begins each choice, followed by a space."""
    inputs = tokenizer.pad([encode_pair(tokenizer, text, choice) for choice in choices], return_tensors="pt")
    return model(**{name: values[None] for name, values in inputs.items()}).logits[0].softmax(-1)


# Questions

@torch.no_grad()
def answer(model, tokenizer, question, context):
    """The answer, "" if there is none. The configuration has the options of the training.

    Where a token is [UNK] or accents are separate characters, finetune.py answers with whole words (F74).
    """
    config, context = model.config, " " + " ".join(context.split())
    inputs, step = parts_of(tokenizer, question, context, config)
    logits = model(**{name: inputs[name] for name in tokenizer.model_input_names})
    texts = [inputs.sequence_ids(i) for i in range(len(inputs["input_ids"]))]
    if 1 not in texts[0]:  # the context has no tokens
        return ""
    first, sizes = texts[0].index(1), [text.count(1) for text in texts]  # of the context's tokens in each part
    candidates = []
    for i, size in enumerate(sizes):
        allowed = torch.tensor([0, *range(first, first + size + 1)])
        of_start, of_end = logits.start_logits[i], logits.end_logits[i]
        for start, end in itertools.product(*(best(scores, allowed, config.beam) for scores in (of_start, of_end))):
            is_valid = first <= start <= end < min(first + size, start + config.max_answer_length)
            if is_valid and best_part(i * step + start - first, sizes, step) == i:
                characters = slice(inputs["offset_mapping"][i, start, 0], inputs["offset_mapping"][i, end, 1])
                candidates.append((float(of_start[start] + of_end[end]), context[characters].strip()))
    score, text = max(candidates, default=(0., ""))
    null_odds = float((logits.start_logits + logits.end_logits)[:, 0].min()) - score
    return "" if config.na_threshold is not None and null_odds > config.na_threshold else text


def parts_of(tokenizer, question, context, config):
    """(inputs of the parts of a context, each after the question; the number of tokens from one part to the next)."""
    room = tokenizer.model_max_length - tokenizer.num_special_tokens_to_add(pair=True)
    tokens = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    tokens = tokens[:config.max_query_length]
    tokens = tokens[:room // 2] if len(tokens) >= room else tokens
    question = question[:tokens[-1][1]] if tokens else ""
    room -= len(tokens)
    step = min(config.doc_stride, room)
    inputs = tokenizer(question, context, truncation="only_second", stride=room - step, return_offsets_mapping=True,
                       return_overflowing_tokens=True, padding=True, return_tensors="pt")
    return inputs, step


def best(scores, allowed, n):
    """The n allowed positions with the highest scores."""
    return allowed[scores[allowed].topk(min(n, len(allowed))).indices].tolist()


def best_part(token, sizes, step):
    """The part in which a token of the context has the most context on both sides."""
    parts = [i for i, size in enumerate(sizes) if i * step <= token < i * step + size]
    return max(parts, key=lambda i: min(token - i * step, i * step + sizes[i] - 1 - token) + .01 * sizes[i])


# Scores and embeddings of texts, with pretrained networks

@torch.no_grad()
def score(model, tokenizer, text):
    """The score of a text by an exported discriminator, as by the command score."""
    inputs = tokenizer(text, return_tensors="pt", return_special_tokens_mask=True)
    is_word = inputs.pop("special_tokens_mask")[0] == 0  # not [CLS] and [SEP]
    logits = model(**inputs).logits[0, is_word]
    is_classifier = logits.dim() == 2  # of a family other than ELECTRA, with the labels "original" and "replaced"
    return (logits[:, 0] - logits[:, 1] if is_classifier else -logits).sum()


def embed(encoder, tokenizer, texts):
    """The mean hidden state of each text, of length 1. encoder: an AutoModel."""
    max_length = min(128, tokenizer.model_max_length)
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
    mask = inputs["attention_mask"][..., None]  # (B, L, 1)
    hidden = encoder(**inputs).last_hidden_state  # (B, L, H)
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


def train_embeddings(encoder, tokenizer, pairs, steps=600, batch_size=32):
    """Train an encoder so that each text finds the other text of its pair among those of the batch."""
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
    encoder.train()
    for _ in range(steps):
        batch = [pairs[i] for i in torch.randperm(len(pairs))[:batch_size]]
        first, second = (embed(encoder, tokenizer, list(texts)) for texts in zip(*batch))
        similarity = first @ second.T / 0.05  # of each first text with each second one of the batch
        loss = torch.nn.functional.cross_entropy(similarity, torch.arange(len(batch)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    encoder.eval()
