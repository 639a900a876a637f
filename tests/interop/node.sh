# shellcheck shell=bash disable=SC2034
# Sourced by scripts that need a kvasird of their own.
#
#   start_node KVASIRD [OPTION...]   starts one on free ports of the loopback and waits until it serves;
#                                    sets node_lm_host, node_lm_port, node_mp and node_http (HOST:PORT);
#                                    MP is served if node_mp_port is set to 0 before
#   stop_node                        asks it to end; returns its exit status
#
# stop_node also runs when the script exits, so that no node is left behind.

node_pid=
node_dir=
node_mp_port=off

start_node() {
  local kvasird=$1
  shift
  if [[ ! -x $kvasird ]]; then
    echo "there is no program $kvasird: build the target kvasird first" >&2
    return 1
  fi
  node_dir=$(mktemp -d)
  # The program opens its output in the background; the search below may come first.
  : >"$node_dir/stdout"
  trap stop_node EXIT
  "$kvasird" --host 127.0.0.1 --lm-port 0 --mp-port "$node_mp_port" --http-port 0 --pool-size 1GiB "$@" \
    >"$node_dir/stdout" 2>"$node_dir/stderr" </dev/null &
  node_pid=$!

  local ready='' deadline=$((SECONDS + 30))
  until ready=$(grep -E '^kvasird ready .* cluster=' "$node_dir/stdout"); do
    if ! kill -0 "$node_pid" 2>/dev/null || ((SECONDS >= deadline)); then
      echo "kvasird did not get ready; it wrote:" >&2
      cat "$node_dir/stdout" "$node_dir/stderr" >&2
      stop_node 2>/dev/null || true
      return 1
    fi
    sleep 0.05
  done
  local lm
  lm=$(sed -E 's/.* lm=([^ ]+).*/\1/' <<<"$ready")
  node_lm_host=${lm%:*}
  node_lm_port=${lm##*:}
  node_mp=$(sed -E 's/.* mp=([^ ]+).*/\1/' <<<"$ready")
  node_http=$(sed -E 's/.* http=([^ ]+).*/\1/' <<<"$ready")
}

stop_node() {
  [[ -n $node_pid ]] || return 0
  local pid=$node_pid status=0 deadline=$((SECONDS + 60))
  node_pid=
  kill -TERM "$pid" 2>/dev/null || true
  while kill -0 "$pid" 2>/dev/null; do
    if ((SECONDS >= deadline)); then
      echo "kvasird did not end within 60 s of SIGTERM; killing it" >&2
      kill -KILL "$pid"
    fi
    sleep 0.05
  done
  wait "$pid" || status=$?
  if ((status != 0)); then
    echo "kvasird ended with status $status; the end of its log:" >&2
    tail -n 40 "$node_dir/stderr" >&2
  fi
  rm -rf "$node_dir"
  return "$status"
}

# The interpreter of the Python environment; a missing one is an error, never a reason to skip.
interop_python() {
  local repo=$1
  local python=${LMCACHE_PYTHON:-$repo/build/python/bin/python}
  if [[ ! -x $python ]]; then
    echo "there is no Python environment at $python: run tests/python_env.sh first" >&2
    return 1
  fi
  echo "$python"
}
