#!/usr/bin/env bash
# Builds release and compares kvasird with its peers; see docs/performance.md.
# Arguments go to run.py, e.g. tests/bench/run.sh --quick, or mp --cells ping; those after embed to
# embed_bench, which has no peers but memcpy.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [[ ${1:-} == embed ]]; then
  tests/python_env.sh
  cmake --preset release -DKVASIR_WITH_TORCH=ON
  cmake --build --preset release --parallel "${JOBS:-$(nproc)}" --target embed_bench kvasird
  mkdir -p build/bench
  exec build/release/bin/embed_bench --kvasird build/release/bin/kvasird --out build/bench/embed.json "${@:2}"
fi
cmake --preset release
cmake --build --preset release --parallel "${JOBS:-$(nproc)}" \
  --target kvasird lm_load lm_null memcpy_rate mp_load mp_echo
suite=lm
[[ ${1:-} != mp ]] || suite=mp
exec tests/bench/run.py --out "build/bench/$suite.json" "$@" --markdown
