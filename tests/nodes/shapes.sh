#!/usr/bin/env bash
# Shapes on three nodes, two of which reach Postgres: one of them follows it, all serve, and a take-over keeps handles and offsets.
# KILLS (9): owners that are killed, put to sleep or drained. MAJOR (17): the version of Postgres. KEEP=1 keeps the nodes' logs.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../pg.sh"
. "$(dirname "$0")/../bucket/buckets.sh"
KILLS=${KILLS:-9} MAJOR=${MAJOR:-17} NODES=3

need_npm && command -v python3 >/dev/null || { skip "shapes on nodes (needs node >= 20 with npm, and python3)"; finish nodes-shapes; }
need_pg "$MAJOR" || { skip "shapes on nodes (needs Postgres $MAJOR)"; finish nodes-shapes; }
workspace
PIDS=() ADDRESSES=()
stop_nodes() { local n; for n in "${!PIDS[@]}"; do [ -n "${PIDS[$n]}" ] && { kill -CONT "${PIDS[$n]}" 2>/dev/null; kill -KILL "${PIDS[$n]}" 2>/dev/null; wait "${PIDS[$n]}" 2>/dev/null; }; PIDS[$n]=; done; }
clean() { stop_nodes; stop_stores; rm -rf "${MODEL_DIR:-$WORK/none}"; if [ "${KEEP:-0}" = 1 ]; then echo "logs are in $WORK"; else rm -rf "$WORK"; fi; }
trap 'clean' EXIT
if ! need_versitygw >"$WORK/install.log" 2>&1; then tail -3 "$WORK/install.log"; skip "shapes on nodes (needs go)"; finish nodes-shapes; fi
start_versitygw || { tail -3 "$WORK/versitygw.log"; fail "versitygw starts"; finish nodes-shapes; }
pg_start "$MAJOR" || { fail "Postgres starts"; finish nodes-shapes; }
for n in $(seq 0 $((NODES - 1))); do ADDRESSES[$n]=127.0.0.1:$(free_port); done
SHAPES=(--shape-insecure on --shape-long-poll-timeout 2s --replication-stream-id test)

# start_node N [flags...]: in the background; 0 and 1 reach the database.
start_node() {
  local n=$1; shift
  local database=()
  [ "$n" -lt 2 ] && database=(--database-url "$PG_URL")
  "$THALWEG_BIN" serve --node "n$n" --listen "${ADDRESSES[$n]}" --data "$WORK/data-$n" --store "$LOCATION" --units 4 --commit-interval 5ms \
    --settle-after 1s "${SHAPES[@]}" "${database[@]}" "$@" >"$WORK/node-$n.out" 2>>"$WORK/node-$n.log" &
  PIDS[$n]=$!
}
within() { local until=$((SECONDS + $1)); shift; until "$@"; do [ $SECONDS -lt $until ] || return 1; sleep 0.1; done; }
metric() { curl -s -m 5 "http://${ADDRESSES[$1]}/metrics" | awk -v name="thalweg_$2" '$1 == name { printf "%.0f\n", $2 }'; }
is_whole() { [ "$(metric "$1" node_units_unserved)" = 0 ]; }
owner() { local n; for n in 0 1; do [ "$(metric $n shape_source_active)" = 1 ] && { echo $n; return 0; }; done; return 1; }
is_owned() { owner >/dev/null; }
is_followed() { curl -s -m 5 "http://${ADDRESSES[2]}/v1/health" | grep -q active; }
sql() { (cd "$NPM" && node --input-type=module -e 'import pg from "pg"; const c = new pg.Client(process.argv[1]); await c.connect(); console.log((await c.query(process.argv[2])).rows.map((row) => Object.values(row).join(" ")).join("\n")); await c.end()' "$PG_URL" "$1"); }
shape() { local n=$1; shift; curl -s -m 15 -D "$WORK/head" "http://${ADDRESSES[$n]}/v1/shape?$1" "${@:2}"; }

# ---- before any node has a database

start_node 2
check "a node without a database starts" within 30 is_whole 2
no_shapes() { shape 2 'table=t&offset=-1' | grep -q no_shapes; }
check "it says that there are no shapes" no_shapes

for n in 0 1; do start_node $n; done
check "one node follows the database" within 60 is_followed
check "and all units have owners" within 30 is_whole 0
check "one slot is there, named after the prefix" test "$(sql "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE 'thalweg_slot_test_%' AND active")" = 1
check "thalweg node ls says whose the shapes are" bash -c "'$THALWEG_BIN' node ls --server http://${ADDRESSES[2]} | grep -q 'shapes'"
refused() { "$THALWEG_BIN" serve --node x --listen 127.0.0.1:0 --advertise http://127.0.0.1:1 --data "$WORK/data-x" --store "$LOCATION" --shape-insecure on --database-url "$PG_URL" "$@" >"$WORK/refused" 2>&1; }
not_temporary() { ! refused --replication-temporary-slot on && grep -q "another node goes on with the slot" "$WORK/refused"; }
check "a temporary slot is refused on nodes" not_temporary

# ---- owners that die, sleep and are drained, while there are writers and clients

LIST=$(IFS=,; echo "${ADDRESSES[*]}")
# Beside the packages that it needs.
MODEL_DIR=$NPM/nodes-shapes-$$
mkdir "$MODEL_DIR" && cp "$ROOT/tests/nodes/shapes.mjs" "$ROOT/tests/shapes/support/tags.mjs" "$MODEL_DIR"
node "$MODEL_DIR/shapes.mjs" "$LIST" --pg "$PG_URL" --begun "$WORK/begun" --until "$WORK/enough" --out "$WORK/result" >"$WORK/model.out" 2>&1 & MODEL=$!
check "clients have their shapes from all nodes" within 120 test -e "$WORK/begun"
for kill in $(seq "$KILLS"); do
  within 60 is_owned || fail "step $kill finds an owner of the shapes"
  n=$(owner)
  case $((kill % 3)) in
    # Longer than any lease: another node follows when it wakes up.
    1) kill -STOP "${PIDS[$n]}"; sleep 4; kill -CONT "${PIDS[$n]}" ;;
    2) kill -KILL "${PIDS[$n]}"; wait "${PIDS[$n]}" 2>/dev/null; rm -rf "$WORK/data-$n"; sleep 0.$((RANDOM % 10)); start_node "$n" ;;
    0) "$THALWEG_BIN" node drain --server "http://${ADDRESSES[$n]}" >/dev/null 2>&1; sleep 2; "$THALWEG_BIN" node drain --undo --server "http://${ADDRESSES[$n]}" >/dev/null 2>&1 ;;
  esac
  within 40 is_whole $((1 - n)) || fail "all units have owners after step $kill"
  within 40 is_owned || fail "the shapes have an owner after step $kill"
  sleep 2.$((RANDOM % 10))
done
touch "$WORK/enough"
wait $MODEL; code=$?
rm -rf "$MODEL_DIR"
head -c 3000 "$WORK/model.out"
epoch() { curl -s -m 5 "http://${ADDRESSES[$1]}/metrics" | awk '$1 == "thalweg_node_unit_epoch{unit=\"shapes\"}" { print $2 }'; }
moves=$(($(epoch "$(owner)") - 1))
number() { grep -o "\"$1\":[0-9]*" "$WORK/result" | cut -d: -f2; }
check "clients could read all the time" test $code = 0
check "rows equal SELECT, no offset goes back or names two things, after $moves moves" grep -q '"problems":\[\]' "$WORK/result"
check "no client of a shape without sub-queries had to start over" test "$(number refetches)" = 0
check "something was written and read" test "$(number written)" -gt 500 -a "$(number messages)" -gt 1000
check "the shapes moved" test "$moves" -ge $((KILLS / 2))
check "parts of shapes were read by POST" test "$(number subsets)" -gt 0
check "one slot is left" test "$(sql "SELECT count(*) FROM pg_replication_slots")" = 1

# ---- a node that stops in order

n=$(owner)
kill -TERM "${PIDS[$n]}"; wait "${PIDS[$n]}"; code=$? PIDS[$n]=
check "the owner stops in order" test $code = 0
check "the other one follows" within 30 is_followed
[ "$FAILED" = 0 ] || for n in 0 1 2; do echo "-- node $n"; grep -v INFO "$WORK/node-$n.log" | tail -15; done
finish nodes-shapes
