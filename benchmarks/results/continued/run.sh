#!/usr/bin/env bash
# The measurement of continued pretraining in docs/pretraining.md: benchmarks/results/continued/run.sh DATA [SEED ...]
# DATA: a folder with wikipedia/ and novels/ (text), blimp/ and glue/. Seeds of pretraining: 1 2 3 by default; tables need all three.
# Rerun the same command to resume. Texts are written to datasets/continued/, scores to checkpoints/glue/scores.jsonl, and the other files
# of this folder to checkpoints/continued/.
# The documentation and its tables (docs.txt, docs_test.txt, wikipedia_for_docs.txt, packages.csv, agreement.csv) came from the docstrings
# of installed packages, which differ between versions. They are no longer generated: put your own texts there.
set -euo pipefail
data=$(realpath "$1")
seeds=${*:2}
seeds=${seeds:-1 2 3}
cd "$(dirname "$0")/../../.."
texts=datasets/continued
pair=benchmarks/results/mini/model
mkdir -p checkpoints/continued
[ -f $texts/wikipedia_for_novels.txt ] || python -m benchmarks.continued "$data"

# further NAME DATAS SEED [key=value ...]: 400 steps of 64 x 64 tokens, 20 of them warmup; its metrics on held-out text
further() {
    python pretrain.py size=mini precision=bf16 micro_batch=64 vocab=$pair steps=400 warmup_steps=20 base_run_name="$1" datas="$2" long_lines=truncate seed="$3" \
        milestones=100 num_workers=0 "${@:4}"
    grep held_out "checkpoints/pretrain/$1_$3/metrics.jsonl" > "checkpoints/continued/$1_$3.jsonl"
}
# finetune GROUP CHECKPOINT SEED FACTOR: the labelled tasks, with a factor of their epochs; a run's number is its seed, which ends the group
finetune() {
    local packages="{'name': 'packages', 'train': '$texts/packages.csv', 'text': 'text', 'label': 'package', 'groups': 'file', 'dev': .2}"
    local agreement="{'name': 'agreement', 'train': '$texts/agreement.csv', 'text': 'text', 'label': 'label', 'groups': 'file', 'dev': .2}"
    local tasks="" task
    for task in packages:4 agreement:6 stsb:3; do
        tasks+="'${task%:*}': {'lr': 3e-4, 'epochs': $((${task#*:} * $4))}, "
    done
    python finetune.py size=mini precision=bf16 glue_dir="$data/glue" group_name="$1_$3" pretrained_checkpoint="$2" num_workers=0 \
        tasks="[$packages, $agreement, 'stsb']" task_overrides="{$tasks}" seeds=[0,1,2,3] start="$3" end=$(($3 + 1))
}

pretrain() {  # DOMAIN SEED
    for lr in 5e-5 1.67e-4 5e-4; do
        further $1_lr$lr $texts/$1.txt $2 initial_weights=$pair lr=$lr
    done
    further $1_mixed "$texts/$1.txt,$texts/wikipedia_for_$1.txt" $2 initial_weights=$pair lr=5e-5
    further $1_scratch $texts/$1.txt $2
}

for seed in $seeds; do
    pretrain docs $seed
    further docs_cold $texts/docs.txt $seed initial_weights=$pair lr=5e-5 warmup_steps=0
    # A discriminator whose generator is missing: first a new generator, then both
    further docs_generator $texts/docs.txt $seed initial_weights=$pair/discriminator vocab=$pair/discriminator new_generator=True
    new=docs_generator_$seed"_100.0%.pth"
    further docs_lone $texts/docs.txt $seed initial_weights="$new" vocab="$new" lr=5e-5
    finetune before $pair/discriminator $seed 1
    for name in docs_lr5e-5 docs_scratch docs_lr5e-4; do
        finetune $name ${name}_$seed"_100.0%.pth" $seed 1
    done
    finetune before_twice $pair/discriminator $seed 2
done
for seed in $seeds; do
    pretrain novels $seed
done
[ $# -gt 1 ] && exit
for lr in 5e-5 5e-4 5e-3; do  # 21 epochs
    further long_lr$lr $texts/novels.txt 1 initial_weights=$pair lr=$lr steps=2000 warmup_steps=100 milestones=.05,5,10,20,40,60,80,100
done

# Discriminators on the same corrupted texts, and on minimal pairs
compare() {  # NAME TEXT CHECKPOINT ...
    python -m _utils replaced_tokens $pair/discriminator "${@:3}" --generator $pair/generator --all --text "$texts/$2_test.txt" \
        > "checkpoints/continued/$1_networks_on_$2.txt"
}
for text in docs wikipedia; do
    compare docs $text checkpoints/pretrain/docs_*_100.0%.pth
done
for text in novels wikipedia; do
    compare novels $text checkpoints/pretrain/novels_*_100.0%.pth
    compare long $text checkpoints/pretrain/long_*_*0%.pth
done
python -m _utils minimal_pairs $pair/discriminator checkpoints/pretrain/docs_{lr5e-5,lr5e-4,scratch}_{1,2,3}_100.0%.pth "$data/blimp" \
    --csv checkpoints/continued/blimp.csv
