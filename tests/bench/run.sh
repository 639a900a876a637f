#!/usr/bin/env bash
# Builds release and compares kvasird with its peers; see docs/performance.md.
# Arguments go to run.py, e.g. tests/bench/run.sh --quick, or mp --cells ping.
set -euo pipefail
cd "$(dirname "$0")/../.."
cmake --preset release
cmake --build --preset release --parallel "${JOBS:-$(nproc)}" \
  --target kvasird lm_load lm_null memcpy_rate mp_load mp_echo
suite=lm
[[ ${1:-} != mp ]] || suite=mp
exec tests/bench/run.py --out "build/bench/$suite.json" "$@" --markdown
