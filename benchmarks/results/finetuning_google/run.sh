#!/usr/bin/env bash
# Prediction 7 of docs/predictions.md: benchmarks/results/finetuning_google/run.sh GLUE [TASK ...]
# GLUE: a folder of GLUE tables. The scores are written to scores.jsonl in this folder; rerun the same command to resume.
set -euo pipefail
glue=$(realpath "$1")
shift
tasks=${*:-rte mrpc cola stsb qnli}
here=$(cd "$(dirname "$0")" && pwd)
repo=$(realpath "$here/../../..")
# Runs are recorded in checkpoints/glue of a folder of their own, whose scores are those of this folder.
work=${WORK:-$repo/checkpoints/finetuning_google}
mkdir -p "$work/checkpoints/glue"
[ -f "$here/scores.jsonl" ] || touch "$here/scores.jsonl"
ln -sf "$here/scores.jsonl" "$work/checkpoints/glue/scores.jsonl"
ln -sfn "$repo/benchmarks" "$work/benchmarks"
cd "$work"
for task in $tasks; do
    for rate in 3e-4 1e-4; do
        for recipe in None google; do
            python "$repo/finetune.py" pretrained_checkpoint=benchmarks/results/mini/model/discriminator max_length=128 \
                glue_dir="$glue" tasks="$task" end=5 "task_overrides={'$task': {'lr': $rate}}" recipe="$recipe" precision=bf16 \
                logger=None group_name="${recipe/None/default}_lr$rate"
            rm -f "checkpoints/glue/${recipe/None/default}_lr${rate}_${task}"_*.pth
        done
    done
done
