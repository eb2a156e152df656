#!/usr/bin/env bash
# kill -9 at random moments. RUNS (2) with growing seeds from SEED (1) on, KILLS (8) in each; the server asks for tokens when the seed is even.
. "$(dirname "$0")/../lib.sh"
KILLS=${KILLS:-8} SEED=${SEED:-1} RUNS=${RUNS:-2}
CRASH=${CRASH_BIN:-$CARGO_TARGET_DIR/release/thalweg-crash}
# Small sizes, so that segments are recycled and data settles many times within a run.
SMALL="--set journal_segment_bytes=4MiB --set journal_bound_bytes=64MiB --set window_bytes=1MiB --set settle_bytes=1MiB --set settle_after=500ms --set purge_after=2s --set reserve_bytes=4MiB"
EXTRA=${CRASH_FLAGS:-}
[ "$THALWEG_KIND" = peer ] && SMALL=

ulimit -n "$(ulimit -Hn)" 2>/dev/null || true
for run in $(seq 0 $((RUNS - 1))); do
  TOKENS=; [ "$THALWEG_KIND" = thalweg ] && [ $(((SEED + run) % 2)) = 0 ] && TOKENS=--tokens
  check "nothing acknowledged is lost, doubled or invented by $KILLS kills (seed $((SEED + run))${TOKENS:+, with tokens})" \
    "$CRASH" --binary "$THALWEG_BIN" --kind "$THALWEG_KIND" --kills "$KILLS" --seed $((SEED + run)) $TOKENS $SMALL $EXTRA
done
# unsynced TRACE BELOW: every folder below one that a process made, and whose name it did not sync into the folder above afterwards.
unsynced() {
  awk -v below="$2" '
    / mkdir(at)?\(/ && / = 0$/ { path = $0; sub(/^[^"]*"/, "", path); sub(/".*/, "", path); if (index(path, below) == 1) made[path] = 1 }
    / (fsync|fdatasync)\(/ { above = $0; sub(/^[^<]*</, "", above); sub(/>.*/, "", above); for (path in made) if (path ~ "^" above "/[^/]+$") delete made[path] }
    END { for (path in made) print "  not durable: " path }' "$1"
}
folders_are_durable() {
  workspace
  strace -f -y -e trace=mkdir,mkdirat,fsync,fdatasync -o "$WORK/trace" \
    "$THALWEG_BIN" serve --listen 127.0.0.1:0 --data "$WORK/a/b/data" --ready-file "$WORK/ready" --reserve-bytes 0 2>/dev/null >/dev/null &
  local tracer=$!
  for _ in $(seq 600); do [ -s "$WORK/ready" ] && break; sleep 0.05; done
  kill $(cat "/proc/$tracer/task/$tracer/children"); wait "$tracer"
  local found; found=$(unsynced "$WORK/trace" "$WORK/a")
  [ -z "$found" ] || { echo "$found"; return 1; }
  # Five at least: a, b, data, and two of the kernel. Without their syncs the trace would show them.
  grep -v sync "$WORK/trace" > "$WORK/silent"
  [ "$(unsynced "$WORK/silent" "$WORK/a" | wc -l)" -ge 5 ]
}
if [ "$THALWEG_KIND" = thalweg ]; then
  if command -v strace >/dev/null; then
    check "every folder that a first start makes is synced into the one above" folders_are_durable
  else
    skip "the order of syncs at a first start (needs strace)"
  fi
fi
if [ "${SELF_TEST:-1}" = 1 ]; then
  check "the checker notices every kind of sabotage" \
    "$CRASH" --binary "$THALWEG_BIN" --kind "$THALWEG_KIND" --self-test --seed "$SEED" $SMALL $EXTRA
fi
finish crash
