#!/usr/bin/env bash
# Runs the administrative commands of LMCache's own command line against a fresh kvasird.
# usage: run_lmcache_cli_check.sh KVASIRD
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$repo/tests/interop/node.sh"

kvasird=${1:?usage: run_lmcache_cli_check.sh KVASIRD}
python=$(interop_python "$repo")
node_mp_port=0

start_node "$kvasird" --chunk-size 16
"$python" "$repo/tests/interop/lmcache_cli_check.py" "$node_http" "$node_mp" --chunk-size 16
stop_node
