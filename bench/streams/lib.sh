# What the measurements share: starting either server, and reading what it cost.
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

# serve WHO FOLDER [flags...]; WHO is thalweg|peer, a colon, durable|buffered. Sets SERVER_PID, BASE, ADDRESS.
serve() {
  local who=$1 folder=$2 port; shift 2
  case $who in
    thalweg:*)
      rm -f "$folder.ready"
      "$THALWEG_BIN" serve --listen 127.0.0.1:0 --data "$folder" --durability "${who#*:}" --ready-file "$folder.ready" "$@" >"$folder.log" 2>&1 &
      SERVER_PID=$!
      until [ -s "$folder.ready" ]; do kill -0 $SERVER_PID 2>/dev/null || { tail -3 "$folder.log"; return 1; }; sleep 0.01; done
      ADDRESS=$(cat "$folder.ready") ;;
    peer:*)
      port=$((20000 + RANDOM % 20000))
      "$PEER" --host 127.0.0.1 --port $port --data-dir "$folder" --durability "$([ "${who#*:}" = durable ] && echo wal || echo memory)" >"$folder.log" 2>&1 &
      SERVER_PID=$! ADDRESS=127.0.0.1:$port
      until curl -fs "http://$ADDRESS/health" >/dev/null; do kill -0 $SERVER_PID 2>/dev/null || { tail -3 "$folder.log"; return 1; }; sleep 0.01; done ;;
  esac
  BASE=http://$ADDRESS
}

cpu_us() { awk -v t="$TICKS" '{sub(/.*\) /, ""); printf "%.0f", ($12 + $13) / t * 1e6}' "/proc/$SERVER_PID/stat"; }
rss_kb() { awk '/VmRSS/ {print $2}' "/proc/$SERVER_PID/status"; }
metric() { curl -fs "$BASE/metrics" | awk -v m="thalweg_$1" '$1 == m {print $2}'; }
median() { sort -n | awk '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)]}'; }
machine() {
  echo "Machine: $(nproc) cores, $(awk '/MemTotal/ {printf "%.0f GB", $2 / 1048576}' /proc/meminfo), $(uname -sr), $(df -T "$SCRATCH" | awk 'NR == 2 {print $2}'); $(date -u '+%Y-%m-%d %H:%M UTC'); load $(cut -d' ' -f1-3 /proc/loadavg)"
}
