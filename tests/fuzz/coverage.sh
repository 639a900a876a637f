#!/bin/sh
# Line coverage of the wire parsers by the wire tests and the fuzzers' corpora (which the wire
# tests replay): tests/fuzz/coverage.sh [BUILD_FOLDER]. Needs clang with llvm-profdata, llvm-cov.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build/coverage}
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_CXX_FLAGS="-fprofile-instr-generate -fcoverage-mapping" >"$build.log"
cmake --build "$build" -j2 --target kvasir_wire_tests >>"$build.log" || { tail -20 "$build.log"; exit 1; }
LLVM_PROFILE_FILE="$build/lm.profraw" "$build/bin/kvasir_wire_tests" --test-suite="lm *,mp *" --minimal
llvm-profdata merge -o "$build/lm.profdata" "$build/lm.profraw"
llvm-cov report "$build/bin/kvasir_wire_tests" -instr-profile="$build/lm.profdata" \
  "$root"/messages/lm_*.cpp "$root"/messages/mp_*.cpp \
  "$root"/messages/msgpack_value.cpp "$root"/messages/*pickle*.cpp
