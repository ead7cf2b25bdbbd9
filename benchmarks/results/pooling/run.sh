#!/usr/bin/env bash
# Mean pooling in docs/log.md: benchmarks/results/pooling/run.sh GLUE, a folder of GLUE tables. Rerun the same command to resume.
# The network in mlm_2/ is the masked language model of benchmarks/results/mini with seed 2, trained again and exported:
#   python pretrain.py size=mini precision=bf16 datas=DATA/wikipedia long_lines=truncate vocab=8192 seed=2 micro_batch=64 num_workers=0 base_run_name=mlm_150m \
#       objective=mlm electra_mask_style=False steps=45653 warmup_steps=1000 lr=2e-3
#   python -m _utils export_hf mlm_150m_2_100.0%.pth exported --half
# From step 22,921 on it was run by torchrun --nproc_per_node=2 with device=cpu.
set -euo pipefail
glue=$(realpath "$1")
cd "$(dirname "$0")/../../.."
mini=benchmarks/results/mini/model

# try_pooling NAME FOLDER RATE TASKS: three finetuning runs of each task with each way of pooling
try_pooling() {
    local overrides="" task pooling
    for task in ${4//,/ }; do
        overrides+="'$task': {'lr': $3, 'epochs': 3}, "
    done
    for pooling in first mean; do
        python finetune.py size=mini precision=bf16 pretrained_checkpoint="$2" max_length=128 glue_dir="$glue" tasks="$4" end=3 \
            "task_overrides={$overrides}" pooling=$pooling group_name="$1_$pooling"
    done
}
try_pooling generator $mini/generator 1e-3 stsb
try_pooling discriminator $mini/discriminator 3e-4 stsb
try_pooling mlm_2 benchmarks/results/pooling/mlm_2 1e-3 stsb,qnli
