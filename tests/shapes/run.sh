#!/usr/bin/env bash
# Shapes of a Postgres database, black box, against each version of Postgres in MAJORS (15 17 18), side by side.
# FILES="where ddl": only these files. TESTS: only tests whose name matches. KEEP=DIR keeps what they print, SHAPES_LOGS=DIR the servers' logs.
# ONCE are files that run on one version only, ONCE_MAJOR, alone: they fill disks and memory, and start a Postgres of their own.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../pg.sh"
MAJORS=${MAJORS:-15 17 18}
ONCE="faults source extremes moves hostile"
ONCE_MAJOR=${ONCE_MAJOR:-$([[ " $MAJORS " == *" 17 "* ]] && echo 17 || echo "${MAJORS%% *}")}

[ "$THALWEG_KIND" = peer ] && { skip "shapes (ours only)"; finish shapes; }
need_npm || { skip "shapes"; finish shapes; }
need_pg $MAJORS
workspace
# Beside node_modules, where imports are looked up.
HERE=$NPM/shapes-$$
mkdir -p "$HERE" && cp -r "$ROOT"/tests/shapes/*.mjs "$ROOT"/tests/shapes/support "$ROOT"/examples/shapes-access "$HERE"/
RUNNING=()
trap 'for pid in "${RUNNING[@]}"; do kill "$pid" 2>/dev/null; done; wait; rm -rf "$HERE" "$WORK"; pg_cleanup' EXIT
FILES=${FILES:-$(cd "$HERE" && ls ./*.test.mjs | sed 's/.test.mjs//; s#./##')}
EACH= ALONE=
for file in $FILES; do
  if [[ " $ONCE " == *" $file "* ]]; then ALONE+=" $file"; else EACH+=" $file"; fi
done

# run_tests REPORT FILES... &: Node's runner, in place of the shell.
run_tests() {
  local out=$1; shift
  cd "$HERE" && exec node --test --test-concurrency="${CONCURRENCY:-2}" --test-timeout=900000 --test-reporter=tap \
    ${TESTS:+--test-name-pattern="$TESTS"} $(printf './%s.test.mjs ' "$@") >"$WORK/$out.tap" 2>&1
}

# Mostly they wait, for changes and for processes to start.
[ -n "$EACH" ] && for major in $MAJORS; do
  pg_bin "$major" >/dev/null || { skip "shapes of Postgres $major"; continue; }
  pg_start "$major" || { fail "Postgres $major starts"; continue; }
  SHAPES_PG=$PG_URL run_tests "$major" $EACH &
  RUNNING+=($!)
  echo "$major" >>"$WORK/reports"
done
wait "${RUNNING[@]}"
RUNNING=()
if [ -n "$ALONE" ] && pg_bin "$ONCE_MAJOR" >/dev/null; then
  # Many sockets at a time.
  ulimit -n "$(ulimit -Hn)" 2>/dev/null || true
  # As many clients as this machine lets one process have, and 500 files besides.
  room=$(ulimit -n); [ "$room" = unlimited ] || [ "$room" -ge 10500 ] || export FAULTS_CLIENTS=${FAULTS_CLIENTS:-$((room - 500))}
  export PG_USER LOADGEN=${LOADGEN:-$CARGO_TARGET_DIR/release/thalweg-loadgen}
  SHAPES_PG_BIN=$(pg_bin "$ONCE_MAJOR") CONCURRENCY=1 run_tests "$ONCE_MAJOR-alone" $ALONE &
  RUNNING+=($!)
  wait "${RUNNING[@]}"
  RUNNING=()
  echo "$ONCE_MAJOR-alone" >>"$WORK/reports"
fi

for report in $(cat "$WORK/reports" 2>/dev/null); do
  count() { sed -n "s/^# $1 //p" "$WORK/$report.tap"; }
  p=$(count pass) f=$(count fail) s=$(count skipped) c=$(count cancelled)
  echo "Postgres $report: ${p:-0} passed, ${f:-0} failed, ${s:-0} skipped"
  # The failed leaves, each with its error's first lines.
  node "$HERE/support/failures.mjs" "$WORK/$report.tap"
  PASSED=$((PASSED + ${p:-0})) FAILED=$((FAILED + ${f:-1} + ${c:-0})) SKIPPED=$((SKIPPED + ${s:-0}))
  [ "${p:-0}" = 0 ] && [ "${f:-0}" = 0 ] && fail "tests ran with Postgres $report"
  [ -n "${KEEP:-}" ] && cp "$WORK/$report.tap" "$KEEP/shapes-$report.tap"
done
finish shapes
