"""Records chunking: spans and tags, scores of fixed predictions, and logits and losses of micro_ckpt (F51, F82-F87).

The sentences of CoNLL-2000 are not published: their labels and the rows of the network need the folder ../shared.
"""
import tempfile
from pathlib import Path

import configure_finetuning
import numpy as np
import run_finetuning
from finetune.tagging import tagging_metrics, tagging_tasks, tagging_utils
from recording import SHARED, load_micro_weights, session, stored, tf, vocab_file, write

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
LENGTH = 64
HEAD = "task_specific/chunk/dense/"


def record():
    values, arrays = stored("chunking.json"), stored("chunking.npz")
    recorded = {
        "spans": [converted(case["tags"]) for case in values["spans"]],
        "scorer": [{"results": scores(values, arrays[f"scorer{i}|predictions"], case["total_words"])}
                   for i, case in enumerate(values["scorer"])],
    }
    if SHARED.is_dir():
        recorded.update(labels_of_sentences())
        yield "chunking.npz", outputs(arrays)
    yield "chunking.json", recorded


def converted(tags):
    spans = tagging_utils.get_span_labels(tags)
    return {"spans": [list(span) for span in spans],
            **{name: tagging_utils.get_tags(spans, len(tags), name.upper()) for name in ("bioes", "bio")}}


def scores(values, predictions, n_words):
    """Entity scores; the recorded loss is of other values, which are not stored."""
    scorer = tagging_metrics.EntityLevelF1Scorer({name: i for i, name in enumerate(values["labels"])})
    for labels, predicted in zip(values["label_ids"], predictions):
        mask = np.zeros(len(predicted))
        mask[:len(labels)] = 1
        padded = np.pad(labels, (0, len(predicted) - len(labels)), "constant")
        scorer.update({"labels": padded, "predictions": predicted, "labels_mask": mask, "loss": 0.})
    assert scorer._total_words == n_words
    found = dict(scorer.get_results())
    del found["loss"]
    return found


def labels_of_sentences():
    """The labels of CoNLL-2000's training and test sets, the latter as dev set, and their ids of 20 sentences."""
    folder = Path(tempfile.mkdtemp())
    config = configure_finetuning.FinetuningConfig("record", str(folder), task_names=["chunk"])
    raw = Path(config.raw_data_dir("chunk"))
    raw.mkdir(parents=True)
    for split, file in (("train", "train.txt"), ("dev", "test.txt")):
        (raw / (split + ".txt")).write_text((SHARED / "data/conll2000" / file).read_text())
    task = tagging_tasks.Chunking(config, None)
    mapping = task._get_label_mapping()
    known = stored(SHARED / "golden/official/qa/chunk.json")["sentences"]
    examples = [tagging_tasks.TaggingExample(0, "chunk", row["words"], row["tags"], False, mapping) for row in known]
    return {"labels": sorted(mapping, key=mapping.get), "label_ids": [example.labels for example in examples]}


def outputs(arrays):
    """Logits and losses of micro_ckpt with the stored head on five sentences."""
    tf.reset_default_graph()
    known = stored(SHARED / "golden/official/qa/chunk.npz")
    prefix = "micro_batch|"
    rows = {key[len(prefix):]: values for key, values in known.items() if key.startswith(prefix)}
    features = {key if key in ("input_ids", "input_mask", "segment_ids", "task_id") else "chunk_" + key:
                tf.constant(values) for key, values in rows.items()}
    n_labels = arrays["micro_out|logits"].shape[-1]
    config = configure_finetuning.FinetuningConfig(
        "record", "/nowhere", model_size="small", task_names=["chunk"], vocab_size=2000, max_seq_length=LENGTH,
        embedding_size=16, vocab_file=vocab_file({"[PAD]": 0}, 2000), model_hparam_overrides=SIZES)
    task = tagging_tasks.Chunking(config, None)
    task._label_mapping = {str(i): i for i in range(n_labels)}
    model = run_finetuning.FinetuningModel(config, [task], False, features, 100)
    found = {name: model.outputs["chunk"][name] for name in ("logits", "labels", "labels_mask", "loss")}
    with session() as s:
        load_micro_weights(s, {HEAD + name: known["micro_head|" + (HEAD + name).replace("/", "|")]
                               for name in ("kernel", "bias")})
        result = s.run(dict(found, loss_sum=model.loss))
    return {"micro_out|" + name: values for name, values in result.items()}


if __name__ == "__main__":
    write(record)
