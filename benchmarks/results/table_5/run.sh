#!/usr/bin/env bash
# The miniature of the paper's table 5 in docs/paper.md: benchmarks/results/table_5/run.sh DATA
# DATA: a folder with wikipedia/ (text) and glue/ (tables). ELECTRA and the masked language model are those of
# benchmarks/results/mini/run.sh with seed 11081. Rerun the same command to resume.
set -euo pipefail
data=$(realpath "$1")
cd "$(dirname "$0")/../../.."
mini="size=mini precision=bf16 num_workers=0"

# Steps of equal compute, and learning rates: a discriminator has that of ELECTRA, a second network that predicts tokens half of the masked
# language model's.
pretrain() {
    python pretrain.py $mini datas="$data/wikipedia" long_lines=truncate vocab=8192 seed=11081 micro_batch=64 objective="$1" base_run_name="$1_150m" "${@:2}"
}
pretrain electra_15
pretrain all_tokens_mlm steps=19969 warmup_steps=1000 lr=1e-3
pretrain replace_mlm steps=32808 warmup_steps=1000 lr=1e-3

# The primary metric of the comparison, with its learning rates of finetuning
for system in electra_15:3e-4 all_tokens_mlm:1e-3 replace_mlm:1e-3; do
    for percent in 25.0 50.0 100.0; do
        overrides=""
        for task in cola stsb qnli mnli; do
            overrides+="'$task': {'lr': ${system#*:}, 'epochs': 3}, "
        done
        python finetune.py $mini glue_dir="$data/glue" pretrained_checkpoint="${system%:*}_150m_11081_$percent%.pth" \
            tasks=cola,stsb,qnli,mnli task_overrides="{$overrides}" end=1
    done
done
