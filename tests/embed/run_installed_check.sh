#!/usr/bin/env bash
# Installs what others link, and builds and runs programs that have nothing else: C++ with tensors
# and C by CMake, C by pkg-config.
#   run_installed_check.sh BUILD_DIRECTORY PYTHON_WITH_TORCH
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1
python=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" --component embedding >"$work/install.log"

libraries=$(dirname "$(find "$work/prefix" -name libkvasir.so)")
others=$(nm -D --defined-only "$libraries/libkvasir.so" | grep -v ' kvasir_' || true)
if [[ -n $others ]]; then
  echo "libkvasir.so shows more than its interface: $others" >&2
  exit 1
fi

cmake -S "$here/installed" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/prefix" -DKVASIR_TORCH_PYTHON="$python" >"$work/cmake.log" ||
  { cat "$work/cmake.log" >&2 && exit 1; }
cmake --build "$work/build"
"$work/build/tensors"
"$work/build/buffers"

export PKG_CONFIG_PATH=$libraries/pkgconfig
flags=$(pkg-config --define-variable=prefix="$work/prefix" --cflags --libs kvasir)
# shellcheck disable=SC2086
cc -std=c11 -Wall -Wextra -Werror -pedantic "$here/installed/buffers.c" -o "$work/buffers" $flags
LD_LIBRARY_PATH=$libraries "$work/buffers"
