#!/usr/bin/env bash
# The measurement of new tokens in docs/log.md: benchmarks/results/new_tokens/run.sh DATA [SEED ...]
# DATA: a folder with wikipedia/ and novels/ (text) and glue/. Seeds of pretraining: 1 by default.
# Rerun the same command to resume. Texts are written to datasets/continued/, scores to checkpoints/glue/scores.jsonl.
# The documentation and its tables are no longer generated: benchmarks/results/continued/run.sh
# Neither are its words: docs_words.txt has the 1,000 most frequent words that the pair divides, one per line.
set -euo pipefail
data=$(realpath "$1")
seeds=${*:2}
seeds=${seeds:-1}
cd "$(dirname "$0")/../../.."
texts=datasets/continued
pair=benchmarks/results/mini/model
[ -f $texts/wikipedia_for_novels.txt ] || python -m benchmarks.continued "$data"

# further NAME SEED [key=value ...]: 400 steps of 64 x 64 tokens, 20 of them warmup
further() {
    python pretrain.py size=mini precision=bf16 micro_batch=64 steps=400 warmup_steps=20 lr=5e-5 base_run_name="$1" \
        datas=$texts/docs.txt long_lines=truncate seed="$2" milestones=100 num_workers=0 initial_weights=$pair "${@:3}"
}
# finetune GROUP CHECKPOINT RUN: the labelled tasks; a run's number is its seed
finetune() {
    local packages="{'name': 'packages', 'train': '$texts/packages.csv', 'text': 'text', 'label': 'package', 'groups': 'file', 'dev': .2}"
    local agreement="{'name': 'agreement', 'train': '$texts/agreement.csv', 'text': 'text', 'label': 'label', 'groups': 'file', 'dev': .2}"
    local overrides="{'packages': {'lr': 3e-4, 'epochs': 4}, 'agreement': {'lr': 3e-4, 'epochs': 6}}"
    python finetune.py size=mini precision=bf16 glue_dir="$data/glue" group_name="$1" pretrained_checkpoint="$2" num_workers=0 \
        max_length=128 tasks="[$packages, $agreement]" task_overrides="$overrides" seeds=[0,1,2,3] start="$3" end=$(($3 + 1))
}

for seed in $seeds; do
    further docs $seed
    further docs_words $seed vocab=$texts/docs_words.txt
done
for run in 1 2 3; do
    finetune before $pair/discriminator $run
    for seed in $seeds; do
        for name in docs_$seed docs_words_$seed; do
            finetune $name $name"_100.0%.pth" $run
        done
    done
done
# The same words by all, and the control: the embeddings of new words are random.
python -m benchmarks.new_tokens --random 1 docs_words_1_100.0%.pth datasets/random_words
further docs_random 1 initial_weights=datasets/random_words
python -m benchmarks.new_tokens $texts/docs_test.txt docs_1_100.0%.pth docs_words_1_100.0%.pth docs_random_1_100.0%.pth
