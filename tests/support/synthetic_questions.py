"""Synthetic questions in the format of SQuAD 2.0."""
import json
import random
from pathlib import Path

WORDS = {"agent": "server client user parser program system reader writer".split(),
         "verb": "read write store send find return change copy".split(),
         "kind": "new old first last local public empty large".split(),
         "thing": "file page table class value string name image".split(),
         "place": ["in the directory", "on the screen", "at the top", "on the disk", "in the header"]}
FACT = "The {agent} can {verb} the {kind} {thing} {place}."
# {slot of the answer: question}; the third one has no answer.
QUESTIONS = {"agent": "Who can {verb} the {kind} {thing}?", "place2": "Where can the {agent2} {verb2} the {thing2}?",
             "": "Who can {verb} the {kind2} {thing}?"}


def write_synthetic_questions(folder, n_train, n_test):
    """Write train.json and test.json: three questions about each text, which has two facts in random order."""
    for name, n in ("train", n_train), ("test", n_test):
        rng, paragraphs = random.Random(f"questions {name}"), []
        for i in range(n):
            words = {slot + end: word for slot, of_slot in WORDS.items()
                     for end, word in zip(("", "2"), rng.sample(of_slot, 2))}
            context = " ".join(rng.sample([FACT, FACT.replace("}", "2}")], 2)).format(**words)
            paragraphs.append({"context": context, "qas": [
                {"id": f"{name}-{i}-{slot}", "question": question.format(**words), "is_impossible": not slot,
                 "answers": [{"text": words[slot], "answer_start": context.index(words[slot])}] if slot else []}
                for slot, question in QUESTIONS.items()]})
        Path(folder, f"{name}.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
