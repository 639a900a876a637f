#!/usr/bin/env bash
# Runs LMCache's own lm:// client and byte-exact probes against a fresh kvasird.
# usage: run_lm_client_check.sh KVASIRD [OPTION of lm_client_check.py...]
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$repo/tests/interop/node.sh"

kvasird=${1:?usage: run_lm_client_check.sh KVASIRD [OPTION...]}
shift
python=$(interop_python "$repo")

start_node "$kvasird"
"$python" "$repo/tests/interop/lm_client_check.py" "$node_lm_host" "$node_lm_port" "$@"
stop_node
