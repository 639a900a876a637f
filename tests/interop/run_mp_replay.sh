#!/usr/bin/env bash
# Replays recorded conversations of LMCache's MP clients against fresh kvasirds.
# usage: run_mp_replay.sh KVASIRD
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$repo/tests/interop/node.sh"

kvasird=${1:?usage: run_mp_replay.sh KVASIRD}
python=$(interop_python "$repo")
node_mp_port=0

failed=0
for strategy in shm pickle; do
  shm=on
  [[ $strategy == shm ]] || shm=off
  echo "conversation_${strategy}_chunk16.json"
  start_node "$kvasird" --shm "$shm" --chunk-size 16
  "$python" "$repo/tests/interop/mp_replay.py" "tcp://$node_mp" \
    "$repo/tests/golden/mp/conversation_${strategy}_chunk16.json" || failed=1
  stop_node || failed=1
done
exit "$failed"
