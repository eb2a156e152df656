#!/usr/bin/env bash
# The published conformance suite against the binary: RUNS times in a row (3), one server, one data folder.
. "$(dirname "$0")/../lib.sh"
RUNS=${RUNS:-3} EXPECTED=338

need_npm || { skip "conformance suite"; finish conformance; }
workspace
start_server --long-poll-timeout 500ms --webhook-targets local || { fail "the server starts"; finish conformance; }
export DS_BASE_URL=$BASE DS_SUBSCRIPTIONS=1
for run in $(seq "$RUNS"); do
  run_vitest "$ROOT/tests/conformance" "$WORK/run$run.json"
  read -r p f <<<"$VITEST"
  echo "run $run: $p of $EXPECTED passed, $f failed"
  PASSED=$((PASSED + p)) FAILED=$((FAILED + f))
  [ "$f" = 0 ] && [ "$p" != "$EXPECTED" ] && fail "run $run has $EXPECTED tests"
done
[ "$THALWEG_KIND" = peer ] || check "the server stops gracefully after the suite" stop_server
finish conformance
