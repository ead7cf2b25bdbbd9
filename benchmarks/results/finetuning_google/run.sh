#!/usr/bin/env bash
# Prediction 7 of docs/log.md: benchmarks/results/finetuning_google/run.sh GLUE, a folder of GLUE tables.
# The scores are written to scores.jsonl in this folder. Rerun the same command to resume.
# RATES="3e-4" or RECIPES="google": a part of the runs, to divide them between cores.
set -euo pipefail
glue=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
repo=$(realpath "$here/../../..")
# The runs have a folder of their own, with the tables without test sets, which are not predicted.
work=${WORK:-$repo/checkpoints/finetuning_google}
mkdir -p "$work/checkpoints/glue"
touch "$here/scores.jsonl"
ln -sfn "$here/scores.jsonl" "$work/checkpoints/glue/scores.jsonl"
ln -sfn "$repo/benchmarks" "$work/benchmarks"
for folder in CoLA MRPC RTE STS-B QNLI; do
    mkdir -p "$work/glue/$folder"
    ln -sfn "$glue/$folder/train.tsv" "$glue/$folder/dev.tsv" "$work/glue/$folder/"
done
cd "$work"
export PYTHONPATH="$repo"
# The CPU that ran 1e-4 has no bf16 arithmetic. It ran the last runs at 3e-4 with emulated products.
declare -A precision=([3e-4]=bf16 [1e-4]=fp32)
# run TASK RATE: five seeds, with and without recipe=google
run() {
    local end recipe group
    for end in 1 2 3 4 5; do
        for recipe in ${RECIPES:-None google}; do
            group=${recipe/None/default}_lr$2
            python -m benchmarks.emulated_bf16 "$repo/finetune.py" precision=${precision[$2]} \
                pretrained_checkpoint=benchmarks/results/mini/model/discriminator max_length=128 \
                glue_dir=glue tasks=$1 end=$end "task_overrides={'$1': {'lr': $2}}" \
                recipe=$recipe logger=None group_name=$group
            rm -f "checkpoints/glue/${group}_$1"_*.pth
        done
    done
}
# QNLI takes longer than the other four together.
for tasks in "cola mrpc rte stsb" qnli; do
    for rate in ${RATES:-3e-4 1e-4}; do
        for task in $tasks; do
            run $task $rate
        done
    done
done
