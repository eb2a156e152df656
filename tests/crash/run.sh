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
if [ "${SELF_TEST:-1}" = 1 ]; then
  check "the checker notices every kind of sabotage" \
    "$CRASH" --binary "$THALWEG_BIN" --kind "$THALWEG_KIND" --self-test --seed "$SEED" $SMALL $EXTRA
fi
finish crash
