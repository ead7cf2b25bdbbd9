"""Pairs with new tokens beside the shipped one, on the same words: `python -m benchmarks.new_tokens TEXT PAIR ...`.

TEXT is a .txt file, of which up to 1,024 examples of up to 64 tokens are used. PAIR is a checkpoint or a folder.
Losses and AUCs per token depend on the vocabulary. Those printed here concern the words of letters that are one token
in the shipped vocabulary, and therefore in every extended one. The shipped generator replaces 15% of them by others.
tokens_per_word: of the whole text, whose words are separated by spaces.
generator_loss: of the masked words, in nats, with probabilities that sum to 1 over the words above.
auc: of the discriminator on the words above.

`python -m benchmarks.new_tokens --random SEED TOKENIZER FOLDER` writes the shipped pair with the new tokens of
TOKENIZER, a folder or checkpoint. Their embeddings are random.
"""
import json
import sys

import torch
from sklearn.metrics import roc_auc_score
from torch.nn.utils.rnn import pad_sequence

from _utils.networks import PARTS, add_tokens, inputs_of, load_with_head, replaced_logits
from _utils.text import load_tokenizer, text_tokenizer

SHIPPED = "benchmarks/results/mini/model"
EXAMPLES, LENGTH, MASK_PROB = 1024, 64, .15


def compare(text, *pairs):
    """Print a line of JSON for the shipped pair and each of `pairs`."""
    with open(text, encoding="utf-8") as file:
        lines = [line for line in file.read().split("\n") if line.strip()]
    generator = load_with_head(SHIPPED, "generator")
    examples = words_of_examples(lines, generator.hf_tokenizer)
    is_whole = whole_words(generator.hf_tokenizer)
    torch.manual_seed(0)
    scored = [[word in is_whole for word in words] for words in examples]
    masked = [[bool(torch.rand(()) < MASK_PROB) and one for one in row] for row in scored]
    replaced = replace(examples, masked, generator, is_whole)
    for name in (SHIPPED, *pairs):
        generator, discriminator = (load_with_head(name, part) for part in PARTS)
        row = {"pair": name, "tokens_per_word": tokens_per_word(lines, generator.hf_tokenizer),
               "generator_loss": generator_loss(examples, masked, generator, is_whole),
               "auc": discriminator_auc(examples, replaced, scored, discriminator),
               "words": sum(map(sum, scored)), "masked": sum(map(sum, masked))}
        print(json.dumps(row), flush=True)


def tokens_per_word(lines, hf_tokenizer):
    encodings = text_tokenizer(hf_tokenizer).encode_batch(lines, add_special_tokens=False)
    return sum(map(len, encodings)) / sum(len(line.split()) for line in lines)


def words_of_examples(lines, hf_tokenizer):
    """Lists of words, evenly spread over the lines, each of at most LENGTH tokens with [CLS] and [SEP]."""
    tokenizer, examples, n = text_tokenizer(hf_tokenizer), [[]], LENGTH
    for line in lines:
        words = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(line))]
        for word in words:
            size = len(tokenizer.encode(word, add_special_tokens=False).ids)
            if n + size > LENGTH - 2:
                examples.append([])
                n = 0
            examples[-1].append(word)
            n += size
    examples = [words for words in examples if words]
    n = min(EXAMPLES, len(examples))
    return [examples[i * len(examples) // n] for i in range(n)]


def whole_words(hf_tokenizer):
    """{word: id} of the tokens that are words of letters. Vocabularies with more tokens have them too."""
    tokens = hf_tokenizer.convert_ids_to_tokens(range(len(hf_tokenizer)))
    return {token: i for i, token in enumerate(tokens) if token.isalpha()}


def at_words(examples, chosen, hf_tokenizer):
    """(input ids, attention mask, bool: first tokens of the chosen words, in their order), (N, L) each."""
    tokenizer, rows, flags = text_tokenizer(hf_tokenizer), [], []
    for words, is_chosen in zip(examples, chosen):
        encoding = tokenizer.encode(words, is_pretokenized=True, add_special_tokens=False)
        starts = [i != before for i, before in zip(encoding.word_ids, [None, *encoding.word_ids])]
        rows.append(torch.tensor([hf_tokenizer.cls_token_id, *encoding.ids, hf_tokenizer.sep_token_id]))
        at_start = [start and is_chosen[i] for i, start in zip(encoding.word_ids, starts)]
        flags.append(torch.tensor([False, *at_start, False]))
    ids = pad_sequence(rows, batch_first=True, padding_value=hf_tokenizer.pad_token_id)
    lengths = torch.tensor([len(row) for row in rows])
    attention_mask = torch.arange(ids.shape[1]) < lengths[:, None]
    return ids, attention_mask, pad_sequence(flags, batch_first=True)


@torch.inference_mode()
def outputs(network, ids, attention_mask, is_chosen, of_output):
    """of_output(network's output) at the chosen positions, all examples together. ids and masks: (N, L)."""
    network.eval()
    found = []
    for batch in zip(ids.split(64), attention_mask.split(64), is_chosen.split(64)):
        output = network(**inputs_of(network, batch[0], batch[1], torch.zeros_like(batch[0])))
        found.append(of_output(output)[batch[2]].float())
    return torch.cat(found)


def masked_logits(examples, masked, generator, is_whole):
    """(M, W) logits of the masked words, over the words `is_whole`; and the M original ids among these."""
    ids, attention_mask, is_masked = at_words(examples, masked, generator.hf_tokenizer)
    candidates = torch.tensor(list(is_whole.values()))
    index = torch.zeros(len(generator.hf_tokenizer), dtype=torch.long)
    index[candidates] = torch.arange(len(candidates))
    hidden = ids.masked_fill(is_masked, generator.hf_tokenizer.mask_token_id)
    of_output = lambda output: output.logits[..., candidates]
    return outputs(generator.network, hidden, attention_mask, is_masked, of_output), index[ids[is_masked]]


def replace(examples, masked, generator, is_whole):
    """The examples, with samples of the generator for the masked words."""
    logits, _ = masked_logits(examples, masked, generator, is_whole)
    samples, words = iter(torch.multinomial(logits.softmax(-1), 1)[:, 0].tolist()), list(is_whole)
    return [[words[next(samples)] if flag else word for word, flag in zip(*row)] for row in zip(examples, masked)]


def generator_loss(examples, masked, generator, is_whole):
    return torch.nn.functional.cross_entropy(*masked_logits(examples, masked, generator, is_whole)).item()


def discriminator_auc(examples, replaced, scored, discriminator):
    ids, attention_mask, is_scored = at_words(replaced, scored, discriminator.hf_tokenizer)
    logits = outputs(discriminator.network, ids, attention_mask, is_scored, replaced_logits)
    pairs = [pair for row in zip(examples, replaced, scored) for *pair, flag in zip(*row) if flag]
    return roc_auc_score([word != other for word, other in pairs], logits.numpy())


def write_random(seed, tokenizer, folder):
    """Write the shipped pair with the tokens of an extended tokenizer to a folder.

    The embeddings of the new tokens are normally distributed, with mean and deviation of the present ones.
    """
    torch.manual_seed(int(seed))
    new, loaded = load_tokenizer(tokenizer), [load_with_head(SHIPPED, part) for part in PARTS]
    networks, n = [one.network for one in loaded], len(loaded[0].hf_tokenizer)
    add_tokens(networks, loaded[0].hf_tokenizer, new)
    tables = [network.get_input_embeddings().weight.data for network in networks]
    present = tables[0][:n]
    rows = present.mean(0) + present.std(0) * torch.randn(len(new) - n, present.shape[1])
    for part, network, table in zip(PARTS, networks, tables):  # the networks share their embeddings
        table[n:len(new)] = rows
        network.save_pretrained(f"{folder}/{part}")
        new.save_pretrained(f"{folder}/{part}")


if __name__ == "__main__":
    if sys.argv[1] == "--random":
        write_random(*sys.argv[2:])
    else:
        compare(*sys.argv[1:])
