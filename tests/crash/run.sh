#!/usr/bin/env bash
# kill -9 at random moments. KILLS (15), SEED (1), and in a soak RUNS (1) with growing seeds.
. "$(dirname "$0")/../lib.sh"
KILLS=${KILLS:-15} SEED=${SEED:-1} RUNS=${RUNS:-1}
CRASH=${CRASH_BIN:-$CARGO_TARGET_DIR/release/thalweg-crash}
# Small sizes, so that segments are recycled and data settles many times within a run.
SMALL="--set journal_segment_bytes=4MiB --set journal_bound_bytes=64MiB --set window_bytes=1MiB --set settle_bytes=1MiB --set settle_after=500ms --set purge_after=2s --set reserve_bytes=4MiB"
EXTRA=${CRASH_FLAGS:-}
[ "$THALWEG_KIND" = peer ] && SMALL=

ulimit -n "$(ulimit -Hn)" 2>/dev/null || true
for run in $(seq 0 $((RUNS - 1))); do
  check "nothing acknowledged is lost, doubled or invented by $KILLS kills (seed $((SEED + run)))" \
    "$CRASH" --binary "$THALWEG_BIN" --kind "$THALWEG_KIND" --kills "$KILLS" --seed $((SEED + run)) $SMALL $EXTRA
done
if [ "${SELF_TEST:-1}" = 1 ]; then
  check "the checker notices every kind of sabotage" \
    "$CRASH" --binary "$THALWEG_BIN" --kind "$THALWEG_KIND" --self-test --seed "$SEED" $SMALL $EXTRA
fi
finish crash
