#!/usr/bin/env bash
# Runs examples/smollm2 against a fresh kvasird: a real model's KV cache, stored and loaded by two processes.
# usage: run_smollm2.sh KVASIRD
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$repo/tests/interop/node.sh"

kvasird=${1:?usage: run_smollm2.sh KVASIRD}
python=$(interop_python "$repo")

start_node "$kvasird"
"$python" "$repo/examples/smollm2/run.py" "$node_lm_host" "$node_lm_port"
stop_node
