#!/usr/bin/env bash
# Installs the Debian packages named as arguments, or without arguments those of debian-packages.txt.
# Asks dpkg first, so that it takes no time and needs no rights when nothing is missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if (($# > 0)); then
  wanted=("$@")
else
  mapfile -t wanted < <(grep -Ev '^(#|$)' "$here/debian-packages.txt")
fi

if ! command -v dpkg-query >/dev/null; then
  echo "install_packages: this is not Debian; install the equivalents of: ${wanted[*]}" >&2
  exit 1
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null |
  sed -n 's/^installed //p' || true)
missing=()
for package in "${wanted[@]}"; do
  grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
done
((${#missing[@]} > 0)) || exit 0

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "install_packages: missing ${missing[*]}; install them as root, or install sudo" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "Installing Debian packages: ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -q --no-install-recommends "${missing[@]}"
