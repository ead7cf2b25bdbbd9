#!/usr/bin/env bash
# ELECTRA-Small until 1.24 % of its steps, then minimal pairs and GLUE, in docs/results.md: benchmarks/results/small/run.sh DATA
# DATA: a folder with wikipedia/ (text), vocab.txt, blimp/ (minimal pairs) and glue/ (tables). Rerun the same command to resume.
set -euo pipefail
data=$(realpath "$1")
cd "$(dirname "$0")/../../.."
run=official_small_11081 untrained=untrained_small_11081
text="datas=$data/wikipedia long_lines=truncate vocab=$data/vocab.txt masking=official initial_weights=official precision=bf16"

# Pretraining on a GPU (that run had stop_at=16000 and ended after step 12,400); and its beginning on a CPU, in two
# processes of one thread each (that run was stopped after step 6,600)
python pretrain.py size=small $text base_run_name=official_small stop_at=12400 milestones=[.1,.2,.4,.6,.8,1,1.24] compile=True
OMP_NUM_THREADS=1 torchrun --nproc_per_node=2 pretrain.py device=cpu size=small $text base_run_name=cpu_small stop_at=6000 \
    milestones=[.1,.2,.4,.6] micro_batch=64 num_workers=0 save_minutes=5
python pretrain.py size=small $text base_run_name=untrained_small steps=1 warmup_steps=1 milestones=[100]

# seeds.csv has held-out metrics with five seeds of the masks, computed by benchmarks/held_out.py before it was removed (492e49ff):
# python -m benchmarks.held_out "checkpoints=${run}_1.24%.pth,cpu_small_11081_0.6%.pth,cpu_small_11081_0.4%.pth" seeds=11081,1,2,3,4 ...

# Minimal pairs: the first 200 of each paradigm
pairs=$(mktemp -d)
shopt -s nullglob
for file in "$data"/blimp/*.jsonl; do head -n 200 "$file" > "$pairs/${file##*/}"; done
for part in discriminator generator; do
    python -m _utils minimal_pairs "${run}_1.24%.pth" "$pairs" --part $part --untrained --csv checkpoints/minimal_pairs_$part.csv
done

# finetune CHECKPOINT TASKS RUNS [key=value ...]: with the settings of the paper, and as many rows of MNLI and QNLI as were available
finetune() {
    python finetune.py precision=bf16 glue_dir="$data/glue" pretrained_checkpoint="$1" tasks="$2" end="$3" \
        "task_overrides={'mnli': {'rows': 10471}, 'qnli': {'rows': 10293}}" "${@:4}"
}
all=cola,sst2,mrpc,stsb,rte,wnli,mnli,qnli
finetune "cpu_small_11081_0.4%.pth" cola,mrpc,stsb 3
finetune "${run}_1.24%.pth" $all 3
finetune "${untrained}_100.0%.pth" $all 1
finetune benchmarks/results/mini/model/discriminator $all 3 size=mini max_length=128 group_name=mini
