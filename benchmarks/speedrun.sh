#!/usr/bin/env bash
# ELECTRA-Small in minutes on one GPU: benchmarks/speedrun.sh datas=PATH vocab=vocab.txt [minutes=9] [keep=FOLDER] [key=value ...]
# Rerun the same command to resume. Results are written to the current folder; benchmarks/speedrun.py explains the keys.
# PYTHON: the interpreter; by default python, or python3 where that is missing.
set -euo pipefail
SPEEDRUN_STARTED=$(date +%s)
export SPEEDRUN_STARTED
repo=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$repo${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-$(command -v python || command -v python3)}" -m benchmarks.speedrun "$@"
