"""Records tokens of lines, pretraining examples built from documents, and encoded texts and pairs (F1-F4, F41)."""
import json
import random
import tempfile
from pathlib import Path

import build_pretraining_dataset
import configure_finetuning
import numpy as np
from finetune.classification import classification_tasks
from model import tokenization
from recording import OFFICIAL, stored, tf, vocab_file, write

INPUTS = OFFICIAL.parent / "electra_pytorch"
VOCAB = INPUTS / "vocab2000.txt"
LENGTH = 128


def record():
    tokenizer = tokenization.FullTokenizer(str(VOCAB), do_lower_case=True)
    lines = [case["text"] for case in stored("docs20_tokenization.json")]
    yield "docs20_tokenization.json", [{"text": text, "tokens": tokenizer.tokenize(text)} for text in lines]
    documents, built = json.loads((INPUTS / "docs20.json").read_text(encoding="utf-8")), {}
    for blanks in (1, 0):
        for name, values in examples(documents, bool(blanks)).items():
            built[f"L128_seed0_blanks{blanks}/{name}"] = values
    yield "docs20_examples.npz", built
    expected = stored("featurize.json")
    yield "featurize.json", {name: [featurized(case, expected["vocabulary"]) for case in expected[name]]
                             for name in ("featurize_pair_L32", "featurize_single_L16")}


def examples(documents, blanks_separate_documents):
    """Arrays of the examples in the TFRecord file that Google's program writes, and the next random number."""
    folder = Path(tempfile.mkdtemp())
    text = folder / "text.txt"
    text.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    random.seed(0)
    writer = build_pretraining_dataset.ExampleWriter(
        0, str(VOCAB), str(folder), LENGTH, 1, blanks_separate_documents, do_lower_case=True, num_out_files=1)
    writer.write_examples(str(text))
    writer.finish()
    [file] = folder.glob("*.tfrecord*")
    arrays = {}
    for serialized in tf.python_io.tf_record_iterator(str(file)):
        for name, feature in tf.train.Example.FromString(serialized).features.feature.items():
            arrays.setdefault(name, []).append(feature.int64_list.value)
    built = {name: np.array(rows) for name, rows in arrays.items()}
    built["next_random"] = np.array(random.random())
    return built


def featurized(case, vocabulary):
    """A text or pair as finetuning encodes it."""
    config = configure_finetuning.FinetuningConfig("record", "/nowhere", max_seq_length=len(case["input_ids"]),
                                                   task_names=["mrpc"])
    tokenizer = tokenization.FullTokenizer(vocab_file(vocabulary, 1 + max(vocabulary.values())), do_lower_case=True)
    task = classification_tasks.MRPC(config, tokenizer)
    example = classification_tasks.InputExample(0, "mrpc", case["a"], case.get("b"), "0")
    features = task.featurize(example, False)
    return {name: features[name] for name in ("input_ids", "input_mask", "segment_ids")}


if __name__ == "__main__":
    write(record)
