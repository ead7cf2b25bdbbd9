#!/usr/bin/env bash
# Mean pooling in docs/pilots.md: benchmarks/results/pooling/run.sh GLUE, a folder of GLUE tables. Rerun the same command to resume.
set -euo pipefail
glue=$(realpath "$1")
cd "$(dirname "$0")/../../.."
for part in generator:1e-3 discriminator:3e-4; do
    for pooling in first mean; do
        python finetune.py size=mini precision=bf16 pretrained_checkpoint="benchmarks/results/mini/model/${part%:*}" max_length=128 \
            glue_dir="$glue" tasks=stsb end=3 "task_overrides={'stsb': {'lr': ${part#*:}, 'epochs': 3}}" \
            pooling=$pooling group_name="${part%:*}_$pooling"
    done
done
