#!/usr/bin/env bash
# ELECTRA-Small at 6.25 % of its training, finetuned on GLUE: benchmarks/gpu_run.sh datas=PATH glue_dir=PATH [key=value ...]
# Rerun the same command to resume. Checkpoints and scores are written to the current folder; benchmarks/gpu_run.py explains the keys.
# PYTHON: the interpreter; by default python, or python3 where that is missing.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$repo${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-$(command -v python || command -v python3)}" -m benchmarks.gpu_run "$@"
