#!/usr/bin/env bash
# The runs of docs/log.md that are left, in its order, on one core at low priority: benchmarks/queue.sh DATA [OUT]
# DATA: a folder with wikipedia/, glue/ and blimp/.   OUT: where finished metrics and scores are copied.
# Runs 1, 2 and 6 are finished: benchmarks/google_curve.py and benchmarks/results/mini/run.sh have their commands.
# Rerun the same command to resume: pretraining continues from its last checkpoint, an interrupted finetuning
# run starts again, finished runs are skipped, and minimal pairs are scored again.
set -euo pipefail
data=$(realpath "$1")
out=$(realpath "${2:-benchmarks/results/queue}")
cd "$(dirname "$0")/.."
renice -n 19 $$ > /dev/null
# Where the kernel groups processes by session, only the priority of the group counts against other sessions.
[ ! -w /proc/self/autogroup ] || echo 19 > /proc/self/autogroup
export OMP_NUM_THREADS=1
mkdir -p "$out"

# keep RUN: its configuration and metrics
keep() {
    mkdir -p "$out/$1"
    cp "checkpoints/pretrain/$1/"{config.json,metrics.jsonl} "$out/$1/"
}
# pretrain NAME SEED [key=value ...] and finetune NAME SEED RATE [TASKS]: as in benchmarks/results/mini/run.sh
mini="size=mini precision=bf16"
mlm="objective=mlm electra_mask_style=False warmup_steps=1000"
pretrain() {
    python -m benchmarks.emulated_bf16 pretrain.py $mini datas="$data/wikipedia" long_lines=truncate vocab=8192 \
        num_workers=0 save_minutes=5 base_run_name="$1" seed="$2" "${@:3}"
    keep "$1_$2"
}
finetune() {
    local overrides="" task tasks="${4:-cola,stsb,qnli,mnli}"
    for task in ${tasks//,/ }; do
        overrides+="'$task': {'lr': $3, 'epochs': 3}, "
    done
    python -m benchmarks.emulated_bf16 finetune.py $mini glue_dir="$data/glue" num_workers=0 \
        pretrained_checkpoint="$1_$2_100.0%.pth" tasks="$tasks" task_overrides="{$overrides}" end=5
    cp checkpoints/glue/scores.jsonl "$out/"
}

# 3. Google's counting with dense embeddings
for seed in 11081 1 2; do
    pretrain mlm_dense $seed $mlm steps=60353 lr=2e-3
    finetune mlm_dense $seed 1e-3
done

# 4. Electric with the operations of ELECTRA's 37,000 steps (benchmarks/flops.py: steps_of_equal_compute), STS-B, and the
#    first 200 minimal pairs of each paradigm
mkdir -p checkpoints/blimp
for file in "$data"/blimp/*.jsonl; do head -n 200 "$file" > "checkpoints/blimp/${file##*/}"; done
for seed in 11081 1 2; do
    pretrain electric_150m $seed objective=electric steps=19373 warmup_steps=1000
    finetune electric_150m $seed 3e-4 stsb
    python -m _utils minimal_pairs "electric_150m_${seed}_100.0%.pth" checkpoints/blimp \
        --csv "$out/minimal_pairs_electric_$seed.csv" | tee "$out/minimal_pairs_electric_$seed.txt"  # with the time
done

# 5. Other learning rates
for rate in 4e-3 7e-4; do
    pretrain mlm_lr$rate 11081 $mlm steps=45653 lr=$rate
    finetune mlm_lr$rate 11081 1e-3
done
