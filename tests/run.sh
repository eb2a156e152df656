#!/usr/bin/env bash
# All tests, or the steps named on the command line. Ends with `N passed, N failed[, N skipped]`.
#   tests/run.sh [cargo] [bucket] [store] [nodes] [nodes-shapes] [newcomer] [conformance] [clients] [load] [live] [nginx] [deploy] [example] [migrate] [crash] [subscriptions] [attack] [shapes] [oracle]
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/pg.sh"
cd "$ROOT" || exit 1
LOGS=$(mktemp -d "${TMPDIR:-/tmp}/thalweg-run-XXXXXX"); trap 'rm -rf "$LOGS"' EXIT
STEPS=${*:-cargo bucket store nodes nodes-shapes newcomer conformance clients load live nginx deploy example migrate crash subscriptions attack shapes oracle}
SUMMARY=

# step NAME COMMAND...: adds up its `STEP` line; a step that dies without one has failed.
step() {
  local name=$1 began=$SECONDS line p f s; shift
  echo; echo "== $name"
  "$@" 2>&1 | tee "$LOGS/$name"
  line=$(grep -E '^STEP ' "$LOGS/$name" | tail -1)
  if [ -n "$line" ]; then
    read -r p f s < <(sed -E 's/.*: ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped.*/\1 \2 \3/' <<<"$line")
  else
    p=0 f=1 s=0
  fi
  PASSED=$((PASSED + p)) FAILED=$((FAILED + f)) SKIPPED=$((SKIPPED + s))
  SUMMARY+=$(printf '%-12s %6d passed %4d failed %4d skipped %6d s' "$name" "$p" "$f" "$s" $((SECONDS - began)))$'\n'
}

cargo_step() {
  local out=$LOGS/cargo.out code
  # Its own counts: it runs in a process of its own.
  FAILED=0 SKIPPED=0
  cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$out"; code=${PIPESTATUS[0]}
  local p f
  p=$(grep -E '^test result' "$out" | sed -E 's/.* ([0-9]+) passed.*/\1/' | awk '{n += $1} END {print n + 0}')
  f=$(grep -E '^test result' "$out" | sed -E 's/.* ([0-9]+) failed.*/\1/' | awk '{n += $1} END {print n + 0}')
  [ "$code" != 0 ] && [ "$f" = 0 ] && { f=1; echo "cargo test failed without naming a test"; }
  # They take every version that is here.
  local major
  for major in $PG_MAJORS; do
    pg_bin "$major" >/dev/null || skip "cargo's tests with Postgres $major"
  done
  for major in $PG_REDO_MAJORS; do
    [[ ":$THALWEG_REDO_MODULES" == *":$major="* ]] || skip "redo by Postgres $major"
  done
  echo "STEP cargo: $p passed, $((f + FAILED)) failed, $SKIPPED skipped"
}

# Everything after cargo's own tests is black box, on the binary that `make run` starts.
if [ "$STEPS" != cargo ] && [ "$THALWEG_KIND" = thalweg ]; then
  echo "== build"
  cargo build --release --locked -p thalweg -p thalweg-crash -p thalweg-oracle -p thalweg-loadgen || { echo "0 passed, 1 failed"; exit 1; }
fi

# The versions of Postgres that tests ask for, installed before any of them; a step that misses one says so.
PG_MAJORS=${PG_MAJORS:-15 17 18} PG_REDO_MAJORS=${PG_REDO_MAJORS:-15 17}
need_pg $PG_MAJORS
need_redo $PG_REDO_MAJORS

for name in $STEPS; do
  case $name in
    cargo) step cargo cargo_step ;;
    newcomer) step newcomer tests/newcomer.sh ;;
    nodes-shapes) step nodes-shapes tests/nodes/shapes.sh ;;
    *) step "$name" "tests/$name/run.sh" ;;
  esac
done

printf '\n%s' "$SUMMARY"
if [ "$SKIPPED" = 0 ]; then echo "$PASSED passed, $FAILED failed"; else echo "$PASSED passed, $FAILED failed, $SKIPPED skipped"; fi
[ "$FAILED" = 0 ]
