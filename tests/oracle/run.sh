#!/usr/bin/env bash
# Random transactions on a real Postgres; every shape must be what a SELECT says. About a minute.
# SEED, COMPARISONS (1200), SECONDS_MAX (15) for each of four runs: without sub-queries, with logs merged all the time, and both with
# sub-queries (SUBQUERIES=0, COMPACTION=0 leave them out). MAJOR: the version of Postgres (17).
# SELF_TEST=0 leaves out the damaged answers. ORACLE_FLAGS: more flags. ORACLE_REFUSALS=1 prints conditions that the server does not take.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../pg.sh"
SEED=${SEED:-1} COMPARISONS=${COMPARISONS:-1200} SECONDS_MAX=${SECONDS_MAX:-15} MAJOR=${MAJOR:-17}
ORACLE=${ORACLE_BIN:-$CARGO_TARGET_DIR/release/thalweg-oracle}

[ "$THALWEG_KIND" = peer ] && { skip "oracle (ours only)"; finish oracle; }
need_pg "$MAJOR" || { skip "oracle"; finish oracle; }
workspace
pg_start "$MAJOR" || { fail "Postgres starts"; finish oracle; }
# A script that restarts this cluster as a crash would.
cat >"$WORK/restart.sh" <<SCRIPT
. "$ROOT/tests/lib.sh"; . "$ROOT/tests/pg.sh"
pg_stop "$PG_DIR" immediate; pg_again "$PG_DIR"
SCRIPT

# oracle NAME FLAGS...
oracle() {
  local claim=$1; shift
  # shellcheck disable=SC2086
  check "$claim" "$ORACLE" --binary "$THALWEG_BIN" --postgres "$PG_URL" --restart "bash $WORK/restart.sh" --seed "$SEED" "$@" ${ORACLE_FLAGS:-}
}
oracle "shapes are what Postgres says, whatever happens (from seed $SEED)" --comparisons "$COMPARISONS" --seconds "$SECONDS_MAX"
MERGED="--set THALWEG_SHAPE_LOG_KEEP=2s --set THALWEG_SHAPE_COMPACT_BYTES=1KiB"
# shellcheck disable=SC2086
[ "${COMPACTION:-1}" = 1 ] &&
  oracle "shapes are what Postgres says while their logs are merged and given up all the time (from seed $SEED)" $MERGED \
    --comparisons "$COMPARISONS" --seconds "$SECONDS_MAX"
[ "${SUBQUERIES:-1}" = 1 ] &&
  oracle "shapes with sub-queries are what Postgres says (from seed $SEED)" --subqueries --comparisons "$COMPARISONS" --seconds "$SECONDS_MAX"
# shellcheck disable=SC2086
[ "${SUBQUERIES:-1}${COMPACTION:-1}" = 11 ] &&
  oracle "shapes with sub-queries are what Postgres says while their logs are merged (from seed $SEED)" --subqueries $MERGED \
    --comparisons "$COMPARISONS" --seconds "$SECONDS_MAX"
[ "${SELF_TEST:-1}" = 1 ] && oracle "the oracle notices every kind of damage" --self-test
finish oracle
