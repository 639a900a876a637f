#!/usr/bin/env bash
# From a fresh Debian 12 to a language model that answers from kvasird's cache, in one command.
#
# Installs what is missing (as root or with sudo), builds kvasird, makes a Python environment with
# LMCache and a small model under build/, starts a node, and runs examples/smollm2 against it.
# Everything lands in build/; a second run starts with what is already there.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$repo/tests/interop/node.sh"
cd "$repo"

step() {
  printf '\n== %s\n' "$*"
}

step "1/5 Debian packages"
cmake/install_packages.sh

step "2/5 Building kvasird (release)"
cmake --preset release
cmake --build --preset release --parallel "$(nproc)" --target kvasird kvasir

step "3/5 Python environment"
tests/python_env.sh

step "4/5 Starting a node"
start_node build/release/bin/kvasird
echo "kvasird serves lm://$node_lm_host:$node_lm_port, its status is at http://$node_http"

step "5/5 A real model, twice: computed and stored by one process, fetched and continued by another"
build/python/bin/python examples/smollm2/run.py "$node_lm_host" "$node_lm_port"

stop_node
echo "kvasird stopped cleanly."
