#!/usr/bin/env bash
# Builds the Python package's wheel, installs it into a fresh environment, and tests it there. torch
# and numpy are those of the environment that has libtorch.
#   run_python_check.sh WORK_DIRECTORY PYTHON_WITH_TORCH
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
work=$1
python=$2
mkdir -p "$work"

# The tools stay from run to run, and with them what they built.
tools=$work/tools
if [[ ! -f $tools/ready ]]; then
  rm -rf "$tools"
  "$python" -m venv "$tools"
  "$python" -c 'import sys, tomllib
print(*tomllib.load(open(sys.argv[1], "rb"))["build-system"]["requires"], sep="\n")' \
    "$repo/python/pyproject.toml" >"$work/requirements.txt"
  "$tools/bin/python" -m pip install --disable-pip-version-check -q -r "$work/requirements.txt"
  touch "$tools/ready"
fi

# The compiler of kvasir's own build, not that of Python's: what ccache has is of use then.
export CC=${CC:-cc} CXX=${CXX:-c++}
launcher=()
if command -v ccache >/dev/null; then
  launcher=(--config-settings cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
rm -rf "$work/wheels" "$work/fresh"
"$tools/bin/python" -m pip wheel --disable-pip-version-check -q --no-deps --no-build-isolation \
  -w "$work/wheels" --config-settings build-dir="$work" "${launcher[@]}" \
  "$repo/python"

"$python" -m venv "$work/fresh"
"$work/fresh/bin/python" -m pip install --disable-pip-version-check -q --no-index \
  "$work"/wheels/kvasir-*.whl
packages=$("$work/fresh/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$packages/torch.pth"

cd "$work"
"$work/fresh/bin/python" "$here/python_check.py"
