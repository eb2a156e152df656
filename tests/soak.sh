#!/usr/bin/env bash
# The long forms. SEEDS=10000 INTERLEAVINGS=100000 KILLS=200 FUZZ_SECONDS=600 tests/soak.sh [simulation] [crash] [fuzz] [backup] [nodes] [store] [cold] [faults] [oracle]
. "$(dirname "$0")/lib.sh"
cd "$ROOT" || exit 1
SEEDS=${SEEDS:-10000} INTERLEAVINGS=${INTERLEAVINGS:-100000} KILLS=${KILLS:-200} FUZZ_SECONDS=${FUZZ_SECONDS:-600}
STEPS=${*:-simulation crash fuzz backup nodes store cold faults oracle}
cargo build --release --locked -p thalweg -p thalweg-crash -p thalweg-oracle -p thalweg-loadgen || exit 1
for step in $STEPS; do
  case $step in
    simulation)
      check "every simulation, $SEEDS seeds and $INTERLEAVINGS orders of threads" \
        env SEEDS="$SEEDS" INTERLEAVINGS="$INTERLEAVINGS" tests/simulations.sh run
      check "planted faults of owners in a bucket that take many seeds" \
        cargo test --release --locked -p thalweg-object --features testing --test owners -- --ignored
      ;;
    crash)
      # Half of them with tokens, half without.
      check "$KILLS kills" env KILLS=$(((KILLS + 1) / 2)) RUNS=2 SEED="${SEED:-$RANDOM}" SELF_TEST=1 tests/crash/run.sh
      ;;
    fuzz)
      if [ -x fuzz/run.sh ]; then
        check "fuzz targets, $FUZZ_SECONDS s each" fuzz/run.sh "$FUZZ_SECONDS"
      else
        skip "fuzz targets (no fuzz/run.sh)"
      fi
      ;;
    backup)
      check "${BACKUPS:-30} backups under load" env ROUNDS="${BACKUPS:-30}" cargo test --release -p thalweg --locked --test backup
      ;;
    nodes)
      check "$KILLS failures of nodes, networks and the bucket" env FAILURES="$KILLS" SUITE=0 tests/nodes/run.sh
      ;;
    store)
      check "$KILLS kills of a server with a bucket" env KILLS="$KILLS" MOVE_MB="${MOVE_MB:-1000}" tests/store/run.sh
      ;;
    cold)
      check "conformance while ten times the cache is cold" env CACHE_MIB="${CACHE_MIB:-64}" COLD_MB="${COLD_MB:-720}" tests/conformance/cold.sh
      ;;
    faults)
      # With transactions of 2 GB. Postgres has them twice, and so have we: 10 GB in TMPDIR.
      check "faults and extremes of shapes" env FAULTS_MB="${FAULTS_MB:-2048}" MAJORS="${MAJORS:-17}" FILES="faults extremes" KEEP="${KEEP:-}" tests/shapes/run.sh
      ;;
    oracle)
      check "shapes are what Postgres says, ${COMPARISONS:-10000} times with and without sub-queries" \
        env COMPARISONS="${COMPARISONS:-10000}" SECONDS_MAX="${SECONDS_MAX:-7200}" SEED="${SEED:-$RANDOM}" tests/oracle/run.sh
      ;;
    *) fail "no such step: $step" ;;
  esac
done
finish soak
