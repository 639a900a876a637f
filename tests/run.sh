#!/usr/bin/env bash
# Builds and runs the tests with the given labels; without any, all but `bench`, `gpu` and `tsan`.
#
#   unit wire sim fault     built twice: with sanitizers (preset asan) and as shipped (preset release)
#   interop cluster slow    preset release; interop needs the Python environment, which is made
#   embed                   preset release, with libtorch from the Python environment, which is made
#   tsan                    unit tests and a planted race that must be found, under ThreadSanitizer
#   gpu                     preset release, on a machine with a device
#   fuzz                    preset fuzz: every target, a bounded number of runs from its committed corpus
#   bench                   tests/bench/run.sh
#
# Installs the Debian packages that are missing (as root or with sudo). Ends with ctest's summary;
# the exit status is 0 only if everything passed.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

fuzz_runs=200000
fuzz_seconds=120

sanitized_labels=(unit wire sim fault)
release_only_labels=(interop cluster slow embed gpu)

# Prints those of the given labels that were asked for, joined as a regular expression.
asked_among() {
  local label found=()
  for label in "$@"; do
    if asked "$label"; then
      found+=("$label")
    fi
  done
  (IFS='|' && echo "${found[*]}")
}

asked() {
  [[ " ${labels[*]} " == *" $1 "* ]]
}

# build PRESET [OPTION of cmake --build...]
build() {
  local torch=AUTO
  if [[ $1 == release ]] && asked embed; then
    torch=ON # Or the tests would silently not be there.
  fi
  cmake --preset "$1" -DKVASIR_WITH_TORCH="$torch"
  cmake --build --preset "$@" --parallel "$(nproc)"
}

# Failures are collected: one broken label must not hide the result of another.
run_ctest() {
  local preset=$1 expression=$2
  build "$preset"
  ctest --preset "$preset" --parallel "$(nproc)" -L "^($expression)\$" || failed+=("ctest ($preset)")
}

# That a race is found is part of it: see tests/tsan.
run_tsan() {
  cmake/install_packages.sh llvm
  build tsan --target kvasir_unit_tests planted_race
  ctest --preset tsan -R '^(unit$|tsan_)' || failed+=("ctest (tsan)")
}

run_fuzz() {
  cmake/install_packages.sh clang libclang-rt-14-dev
  build fuzz --target kvasir_fuzz
  # Undefined behaviour would otherwise only be printed.
  local -x UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:suppressions=$PWD/tests/ubsan_suppressions.txt
  local target name found
  for target in build/fuzz/bin/*_fuzz; do
    name=$(basename "$target" _fuzz)
    found=build/fuzz/found/$name
    mkdir -p "$found"
    echo "Fuzzing $name"
    # New inputs go to the first folder, so that the committed corpus changes only on purpose.
    "$target" -runs="$fuzz_runs" -max_total_time="$fuzz_seconds" -artifact_prefix="$found/" -verbosity=0 \
      "$found" "tests/fuzz/corpus/$name" || failed+=("fuzz $name")
  done
}

labels=("$@")
if ((${#labels[@]} == 0)); then
  labels=(unit wire sim fault interop cluster embed fuzz slow)
fi
for label in "${labels[@]}"; do
  case $label in
    unit | wire | sim | fault | interop | cluster | slow | embed | gpu | fuzz | tsan | bench) ;;
    *)
      echo "unknown label $label; known: unit wire sim fault interop cluster slow embed gpu fuzz tsan bench" >&2
      exit 2
      ;;
  esac
done

failed=()
cmake/install_packages.sh
if asked interop || asked embed; then
  tests/python_env.sh
fi
if asked bench; then
  tests/bench/run.sh || failed+=(bench)
fi
if asked fuzz; then
  run_fuzz
fi
if asked tsan; then
  run_tsan
fi
sanitized=$(asked_among "${sanitized_labels[@]}")
if [[ -n $sanitized ]]; then
  run_ctest asan "$sanitized"
fi
release=$(asked_among "${sanitized_labels[@]}" "${release_only_labels[@]}")
if [[ -n $release ]]; then
  run_ctest release "$release"
fi

if ((${#failed[@]} > 0)); then
  echo "FAILED: ${failed[*]}" >&2
  exit 1
fi
