#!/usr/bin/env bash
# Makes the Python environment of the interop tests and examples at build/python, or brings it up to date.
# A stamp holding a hash of the requirements makes a second run instant.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
env_dir=$repo/build/python
stamp=$env_dir/requirements.sha256
requirements=$repo/tests/python_requirements.txt
no_deps=$repo/tests/python_requirements_no_deps.txt
# Debian's own interpreter: another one first on PATH need not be 3.11, which the pinned versions were tested with.
python=/usr/bin/python3

wanted=$(cat "$requirements" "$no_deps" | sha256sum | cut -d' ' -f1)

mkdir -p "$repo/build"
exec 9>"$repo/build/python.lock"
if ! flock --nonblock 9; then
  echo "Another run is preparing build/python; waiting for it."
  flock 9
fi

if [[ -f $stamp && $(<"$stamp") == "$wanted" ]]; then
  exit 0
fi

"$repo/cmake/install_packages.sh" python3 python3-venv

echo "Creating the Python environment build/python: LMCache, PyTorch, Transformers and a small model."
echo "This downloads about 3 GB, takes about 6 GB on disk and about 4 minutes; later runs reuse it."
rm -f "$stamp"
"$python" -m venv "$env_dir"

# Unpacking the large wheels is silent, so say now and then how far it is.
(
  while sleep 15; do
    echo "  build/python: $(du -sm "$env_dir" | cut -f1) MB of about 6000, ${SECONDS} s"
  done
) 9>&- &
ticker=$!
trap 'kill "$ticker" 2>/dev/null || true' EXIT

"$env_dir/bin/python" -m pip install --disable-pip-version-check --progress-bar off -r "$requirements" 9>&-
"$env_dir/bin/python" -m pip install --disable-pip-version-check --progress-bar off --no-deps -r "$no_deps" 9>&-

echo "$wanted" >"$stamp"
echo "build/python is ready after ${SECONDS} s."
