#!/usr/bin/env bash
# Passes tensors that real torch pickled through kvasir's reader and writer.
# usage: run_tensor_pickle_check.sh TENSOR_PICKLE_ECHO
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$repo/tests/interop/node.sh"

python=$(interop_python "$repo")
"$python" "$repo/tests/interop/tensor_pickle_check.py" "${1:?usage: run_tensor_pickle_check.sh TENSOR_PICKLE_ECHO}"
