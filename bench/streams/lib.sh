# Shared parts of the measurements: starting either server, and reading its cost.
. "$(dirname "${BASH_SOURCE[0]}")/../../tests/lib.sh"
BENCH=$ROOT/bench/streams
TICKS=$(getconf CLK_TCK)
LOADGEN=${LOADGEN:-$CARGO_TARGET_DIR/release/thalweg-loadgen}
PEER=${PEER:-$CACHE/peer/bin/durable-streams-server}
SCRATCH=${SCRATCH:-$CACHE/bench}
ulimit -n "$(ulimit -Hn)" 2>/dev/null || true

need() { command -v "$1" >/dev/null || { echo "$1 is not here: install the package ${2:-$1}"; exit 1; }; }
build() { [ -n "${NO_BUILD:-}" ] && return; (cd "$ROOT" && cargo build --release --locked -p thalweg -p thalweg-loadgen) || exit 1; }
need_peer() {
  [ -x "$PEER" ] || cargo install durable-streams --version 0.1.5 --locked --root "$CACHE/peer" || { echo "the reference server cannot be installed"; return 1; }
}

# The reference server for Node, outside of the clone.
need_node_peer() {
  need_node || { echo "node >= 20 with npm is not here"; return 1; }
  NODE_PEER=${NODE_PEER:-$CACHE/node-peer}
  [ -d "$NODE_PEER/node_modules/@durable-streams/server" ] && return 0
  mkdir -p "$NODE_PEER" && (cd "$NODE_PEER" && npm init -y && npm install --no-audit --no-fund @durable-streams/server@0.3.7) >"$CACHE/node-peer.log" 2>&1 ||
    { echo "the reference server for Node cannot be installed:"; tail -3 "$CACHE/node-peer.log"; return 1; }
}
# Below the ephemeral ports, so that no connection has it.
free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); do (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break; done
  echo $port
}

# serve WHO FOLDER [flags...]; WHO is thalweg|earlier|peer|node, a colon, durable|buffered; or floor:none|write|sync.
# The flags are thalweg's. Sets SERVER_PID, BASE, ADDRESS.
serve() {
  local who=$1 folder=$2 port; shift 2
  case $who in
    thalweg:* | earlier:*)
      rm -f "$folder.ready"
      "$([ "${who%:*}" = thalweg ] && echo "$THALWEG_BIN" || echo "$EARLIER")" serve --listen 127.0.0.1:0 --data "$folder" --durability "${who#*:}" --ready-file "$folder.ready" "$@" >"$folder.log" 2>&1 &
      SERVER_PID=$!
      until [ -s "$folder.ready" ]; do kill -0 $SERVER_PID 2>/dev/null || { tail -3 "$folder.log"; return 1; }; sleep 0.01; done
      ADDRESS=$(cat "$folder.ready") ;;
    peer:*)
      port=$(free_port)
      "$PEER" --host 127.0.0.1 --port $port --data-dir "$folder" --durability "$([ "${who#*:}" = durable ] && echo wal || echo memory)" >"$folder.log" 2>&1 &
      SERVER_PID=$! ADDRESS=127.0.0.1:$port
      until curl -fs "http://$ADDRESS/health" >/dev/null; do kill -0 $SERVER_PID 2>/dev/null || { tail -3 "$folder.log"; return 1; }; sleep 0.01; done ;;
    node:*)
      port=$(free_port) ADDRESS=127.0.0.1:$port
      cat >"$NODE_PEER/serve.mjs" <<'EOF'
import { DurableStreamTestServer } from "@durable-streams/server"
const [port, dataDir] = process.argv.slice(2)
await new DurableStreamTestServer({ port: +port, host: "127.0.0.1", ...(dataDir ? { dataDir } : {}) }).start()
EOF
      node "$NODE_PEER/serve.mjs" "$port" $([ "${who#*:}" = durable ] && echo "$folder") >"$folder.log" 2>&1 &
      SERVER_PID=$!
      until curl -s "http://$ADDRESS/" >/dev/null; do kill -0 $SERVER_PID 2>/dev/null || { tail -3 "$folder.log"; return 1; }; sleep 0.05; done ;;
    floor:*)
      mkdir -p "$folder"; rm -f "$folder.ready"
      "$LOADGEN" floor --log "$folder/log" --effort "${who#*:}" >"$folder.ready" 2>"$folder.log" &
      SERVER_PID=$!
      until [ -s "$folder.ready" ]; do kill -0 $SERVER_PID 2>/dev/null || { tail -3 "$folder.log"; return 1; }; sleep 0.01; done
      ADDRESS=$(cat "$folder.ready") ;;
  esac
  BASE=http://$ADDRESS
}

# The load generator against the server that runs; its last line is in OUT.
load() { OUT=$("$LOADGEN" --server "$ADDRESS" --server-pid "$SERVER_PID" "$@" 2>"$WORK/load.err" | tail -1); [ -n "$OUT" ] || { OUT=; sed 's/^/    /' "$WORK/load.err" >&2; return 1; }; }
# field NAME: a value of OUT.
field() { sed -nE "s/(^|.* )$1=([-0-9.]+).*/\2/p" <<<"$OUT"; }
# Waits until all content is settled into objects; the reference server gets as long as its checkpoints take.
settled() {
  case $1 in
    thalweg:* | earlier:*) for _ in $(seq 240); do [ "$(metric settle_lag_bytes)" = 0 ] && break; sleep 0.25; done; sleep 1 ;;
    *) sleep 5 ;;
  esac
}

cpu_us() { awk -v t="$TICKS" '{sub(/.*\) /, ""); printf "%.0f", ($12 + $13) / t * 1e6}' "/proc/$SERVER_PID/stat"; }
rss_kb() { awk '/VmRSS/ {print $2}' "/proc/$SERVER_PID/status"; }
metric() { curl -fs "$BASE/metrics" | awk -v m="thalweg_$1" '$1 == m {print $2}'; }
median() { sort -n | awk '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)]}'; }
machine() {
  echo "Machine: $(nproc) cores, $(awk '/MemTotal/ {printf "%.0f GB", $2 / 1048576}' /proc/meminfo), $(uname -sr), $(df -T "$SCRATCH" | awk 'NR == 2 {print $2}'); $(date -u '+%Y-%m-%d %H:%M UTC'); load $(cut -d' ' -f1-3 /proc/loadavg)"
}
