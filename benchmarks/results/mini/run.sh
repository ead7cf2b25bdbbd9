#!/usr/bin/env bash
# The comparison of ELECTRA and masked language modelling in docs/results.md: benchmarks/results/mini/run.sh DATA
# DATA: a folder with wikipedia/ (text), glue/ (tables) and conll2000/ (train.txt, test.txt).
# The first three seeds took 24 hours of pretraining and 8 of finetuning on one core, the others 17 and 2 on a busy machine. Rerun the same command to resume. Checkpoints, metrics and scores are written to checkpoints/.
set -euo pipefail
data=$(realpath "$1")
cd "$(dirname "$0")/../../.."
seeds="11081 1 2"
mini="size=mini precision=bf16"
text="datas=$data/wikipedia long_lines=truncate vocab=8192"
glue="glue_dir=$data/glue"
primary=cola,stsb,qnli,mnli
chunking="{'name': 'chunking', 'train': '$data/conll2000/train.txt', 'test': '$data/conll2000/test.txt'}"

# Pretraining
for seed in $seeds; do
    python pretrain.py $mini $text seed=$seed base_run_name=electra_150m
    mlm="objective=mlm electra_mask_style=False steps=45653 warmup_steps=1000"
    python pretrain.py $mini $text seed=$seed base_run_name=mlm_150m $mlm lr=2e-3
    python pretrain.py $mini $text seed=$seed base_run_name=check_mlm_lr1e-3 $mlm lr=1e-3
done
python pretrain.py size=mini $text base_run_name=untrained steps=1 warmup_steps=1

# finetune CHECKPOINT TASKS RATE [key=value ...]: tasks of GLUE with this learning rate, three epochs; a sample of SST-2
finetune() {
    local overrides="" task rows
    for task in ${2//,/ }; do
        [[ $task == sst2 ]] && rows=", 'rows': 10000" || rows=
        overrides+="'$task': {'lr': $3, 'epochs': 3$rows}, "
    done
    python finetune.py $mini $glue pretrained_checkpoint="$1.pth" tasks="$2" task_overrides="{$overrides}" "${@:4}"
}

# The learning rate of finetuning
for rate in 0.0001 0.0003 0.001 0.003; do
    for run in electra_150m_11081 mlm_150m_11081; do
        finetune $run"_100.0%" $primary $rate seeds=[100] end=1 group_name=grid_${run}_lr$rate
    done
done
for rate in 0.0003 0.001; do
    for run in mlm_150m_2 untrained_11081; do
        finetune $run"_100.0%" $primary $rate seeds=[100] end=1 group_name=grid_${run}_lr$rate
    done
done

# The primary metric, and SST-2 and MRPC at the end, the primary metric at earlier checkpoints
for seed in $seeds; do
    for system in electra_150m:3e-4 mlm_150m:1e-3; do
        run=${system%:*}_$seed rate=${system#*:}
        finetune $run"_100.0%" $primary $rate end=5
        finetune $run"_100.0%" sst2,mrpc $rate end=1
        for percent in 6.25 12.5 25.0 50.0; do
            finetune $run"_$percent%" $primary $rate end=1
        done
    done
    finetune check_mlm_lr1e-3_$seed"_100.0%" $primary 1e-3 end=5
done
finetune untrained_11081_100.0% $primary 3e-4 end=5
finetune untrained_11081_100.0% sst2,mrpc 3e-4 end=1

# Chunking
tag() {
    python finetune.py $mini pretrained_checkpoint="$1.pth" tasks="$chunking" end=1 task_overrides="{'chunking': {'lr': $2}}" "${@:3}"
}
for run in {electra_150m,mlm_150m}_{11081,1,2} untrained_11081; do
    tag $run"_100.0%" 1e-3
    tag $run"_100.0%" 1e-2 freeze=True group_name=chunking_frozen_$run
done
for seed in $seeds; do
    tag check_mlm_lr1e-3_$seed"_100.0%" 1e-3
    for percent in 6.25 12.5 25.0 50.0; do
        tag electra_150m_$seed"_$percent%" 1e-3
        tag mlm_150m_$seed"_$percent%" 1e-3
    done
done

# Two more seeds: the primary metric, and chunking with half the learning rate
for seed in 3 4; do
    python pretrain.py $mini $text seed=$seed base_run_name=electra_150m
    python pretrain.py $mini $text seed=$seed base_run_name=mlm_150m $mlm lr=2e-3
    python pretrain.py $mini $text seed=$seed base_run_name=check_mlm_lr1e-3 $mlm lr=1e-3
    finetune electra_150m_$seed"_100.0%" $primary 3e-4 end=5
    finetune mlm_150m_$seed"_100.0%" $primary 1e-3 end=5
    finetune check_mlm_lr1e-3_$seed"_100.0%" $primary 1e-3 end=5
    tag check_mlm_lr1e-3_$seed"_100.0%" 1e-3
done

python -m _utils compare_pretraining electra_150m mlm_150m --tasks $primary --baseline untrained_11081
