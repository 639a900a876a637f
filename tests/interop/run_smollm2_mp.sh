#!/usr/bin/env bash
# Runs examples/smollm2 over the MP protocol against fresh kvasirds: a real model's KV cache, stored and loaded by
# two processes of one and of two KV ranks, through shared memory and inline.
# usage: run_smollm2_mp.sh KVASIRD
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$repo/tests/interop/node.sh"

kvasird=${1:?usage: run_smollm2_mp.sh KVASIRD}
python=$(interop_python "$repo")
node_mp_port=0

for shm in on off; do
  echo "--shm $shm"
  start_node "$kvasird" --shm "$shm"
  "$python" "$repo/examples/smollm2/mp_run.py" "tcp://$node_mp"
  stop_node
done
