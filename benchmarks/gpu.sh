#!/usr/bin/env bash
# The first minutes on a GPU: benchmarks/gpu.sh [key=value ...]; benchmarks/gpu.py explains the keys.
# PYTHON: the interpreter; by default python, or python3 where that is missing.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false PYTHONPATH="$repo${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-$(command -v python || command -v python3)}" -m benchmarks.gpu "$@"
