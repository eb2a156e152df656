#!/usr/bin/env bash
# Random transactions on a real Postgres; every shape must equal its SELECT. About a minute.
# SEED, COMPARISONS (1200), SECONDS_MAX (15) for each of four runs: without sub-queries, with logs merged all the time, and both with
# sub-queries (SUBQUERIES=0, COMPACTION=0 leave them out); for a fifth, twice as long, in which the source becomes another one (SOURCE=0).
# PLAIN=0 leaves out the first. MAJOR: the version of Postgres (17).
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

# A script that changes the cluster's history, as tests/oracle/src/source.rs asks.
cat >"$WORK/source.sh" <<SCRIPT
. "$ROOT/tests/lib.sh"; . "$ROOT/tests/pg.sh"
D=$PG_DIR OTHER=$((PG_PORT + 1))
SCRIPT
cat >>"$WORK/source.sh" <<'SCRIPT'
set -e
ctl() { as_pg "$(cat "$D/bin")/pg_ctl" "$@" -w -t 60 -s >/dev/null 2>&1; }
case $1 in
keep) pg_stop "$D"; rm -rf "$D/kept"; cp -a "$D/data" "$D/kept"; pg_again "$D" ;;
set-back) pg_stop "$D" immediate; rm -rf "$D/data"; cp -a "$D/kept" "$D/data"; pg_again "$D" ;;
standby)
  pg_stop "$D"
  rm -rf "$D/standby"
  cp -a "$D/data" "$D/standby"
  # Slots are the primary's.
  rm -rf "$D"/standby/pg_replslot/*
  echo "primary_conninfo = 'host=127.0.0.1 port=$(cat "$D/port") user=postgres'" >>"$D/standby/postgresql.auto.conf"
  as_pg touch "$D/standby/standby.signal"
  pg_again "$D"
  ctl start -D "$D/standby" -l "$D/standby.log" -o "-p $OTHER"
  ;;
stop-standby) ctl stop -D "$D/standby" -m fast ;;
promote)
  # The primary ends when the standby has everything that it wrote, unless it has no follower.
  pg_stop "$D" fast
  [ ! -e "$D/standby/postmaster.pid" ] || ctl stop -D "$D/standby" -m fast
  rm -rf "$D/data"
  mv "$D/standby" "$D/data"
  pg_again "$D"
  ctl promote -D "$D/data"
  ;;
replace)
  pg_stop "$D" immediate
  cp -a "$D/data/postgresql.conf" "$D/data/pg_hba.conf" "$D"
  rm -rf "$D/data"
  as_pg "$(cat "$D/bin")/initdb" -D "$D/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync >/dev/null 2>&1
  mv "$D/postgresql.conf" "$D/pg_hba.conf" "$D/data"
  pg_again "$D"
  ;;
esac
SCRIPT
# A standby that a history left behind goes with its primary.
trap "[ ! -e '$PG_DIR/standby/postmaster.pid' ] || as_pg '$(cat "$PG_DIR/bin")/pg_ctl' stop -D '$PG_DIR/standby' -m immediate -s; $(trap -p EXIT | sed -E "s/^trap -- '(.*)' EXIT$/\1/")" EXIT

# oracle NAME FLAGS...
oracle() {
  local claim=$1; shift
  # shellcheck disable=SC2086
  check "$claim" "$ORACLE" --binary "$THALWEG_BIN" --postgres "$PG_URL" --restart "bash $WORK/restart.sh" --seed "$SEED" "$@" ${ORACLE_FLAGS:-}
}
[ "${PLAIN:-1}" = 1 ] &&
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
# shellcheck disable=SC2086
[ "${SOURCE:-1}" = 1 ] &&
  oracle "shapes are what Postgres says after its files were put back, a standby took over, or another cluster came (from seed $SEED)" --subqueries $MERGED \
    --source "bash $WORK/source.sh" --comparisons "$COMPARISONS" --seconds "$((2 * SECONDS_MAX))"
[ "${SELF_TEST:-1}" = 1 ] && oracle "the oracle notices every kind of damage" --self-test
finish oracle
