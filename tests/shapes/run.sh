#!/usr/bin/env bash
# Shapes of a Postgres database, black box, against each version of Postgres in MAJORS (15 17 18), side by side.
# FILES="where ddl": only these files. TESTS: only tests whose name matches. KEEP=DIR keeps what they print.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../pg.sh"
MAJORS=${MAJORS:-15 17 18}

[ "$THALWEG_KIND" = peer ] && { skip "shapes (ours only)"; finish shapes; }
need_npm || { skip "shapes"; finish shapes; }
need_pg $MAJORS
workspace
# Beside node_modules, where imports are looked up.
HERE=$NPM/shapes-$$
mkdir -p "$HERE" && cp -r "$ROOT"/tests/shapes/*.mjs "$ROOT"/tests/shapes/support "$HERE"/
RUNNING=()
trap 'for pid in "${RUNNING[@]}"; do kill "$pid" 2>/dev/null; done; wait; rm -rf "$HERE" "$WORK"; pg_cleanup' EXIT
FILES=${FILES:-$(cd "$HERE" && ls ./*.test.mjs | sed 's/.test.mjs//; s#./##')}

# Mostly they wait, for changes and for processes to start.
for major in $MAJORS; do
  pg_bin "$major" >/dev/null || { skip "shapes of Postgres $major"; continue; }
  pg_start "$major" || { fail "Postgres $major starts"; continue; }
  # shellcheck disable=SC2086
  (cd "$HERE" && SHAPES_PG=$PG_URL exec node --test --test-concurrency="${CONCURRENCY:-2}" --test-timeout=900000 --test-reporter=tap \
    ${TESTS:+--test-name-pattern="$TESTS"} $(printf './%s.test.mjs ' $FILES)) >"$WORK/$major.tap" 2>&1 &
  RUNNING+=($!)
  echo "$major" >>"$WORK/majors"
done
wait "${RUNNING[@]}"
RUNNING=()

for major in $(cat "$WORK/majors" 2>/dev/null); do
  count() { sed -n "s/^# $1 //p" "$WORK/$major.tap"; }
  p=$(count pass) f=$(count fail) s=$(count skipped) c=$(count cancelled)
  echo "Postgres $major: ${p:-0} passed, ${f:-0} failed, ${s:-0} skipped"
  # The leaves of what failed, each with its error's first lines.
  node "$HERE/support/failures.mjs" "$WORK/$major.tap"
  PASSED=$((PASSED + ${p:-0})) FAILED=$((FAILED + ${f:-1} + ${c:-0})) SKIPPED=$((SKIPPED + ${s:-0}))
  [ "${p:-0}" = 0 ] && [ "${f:-0}" = 0 ] && fail "tests ran with Postgres $major"
  [ -n "${KEEP:-}" ] && cp "$WORK/$major.tap" "$KEEP/shapes-$major.tap"
done
finish shapes
