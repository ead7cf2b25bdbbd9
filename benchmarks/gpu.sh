#!/usr/bin/env bash
# The first minutes on a GPU: benchmarks/gpu.sh [key=value ...]; benchmarks/gpu.py explains the keys.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false PYTHONPATH="$repo${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python}" -m benchmarks.gpu "$@"
