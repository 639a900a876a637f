#!/usr/bin/env bash
# Runs LMCache's own MP adapters, single operations and hostile messages against fresh kvasirds: both ways for
# payload to travel, a small and the usual chunk.
# usage: run_mp_client_check.sh KVASIRD [OPTION of mp_client_check.py...]
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$repo/tests/interop/node.sh"

kvasird=${1:?usage: run_mp_client_check.sh KVASIRD [OPTION...]}
shift
python=$(interop_python "$repo")
node_mp_port=0

failed=0
for shm in on off; do
  for chunk_size in 16 256; do
    echo "--shm $shm --chunk-size $chunk_size"
    start_node "$kvasird" --shm "$shm" --chunk-size "$chunk_size"
    expect=shm
    [[ $shm == on ]] || expect=pickle
    "$python" "$repo/tests/interop/mp_client_check.py" "tcp://$node_mp" --expect "$expect" "$@" || failed=1
    stop_node || failed=1
  done
done
exit "$failed"
