#!/usr/bin/env bash
# Three nodes that share a bucket of versitygw: any node takes any request, kills and sleeps lose nothing, and clients notice a wait.
# KILLS (8): nodes that are killed or put to sleep. SUITE=0 leaves the conformance suite out.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../bucket/buckets.sh"
KILLS=${KILLS:-8} EXPECTED=332 NODES=3

need_npm && command -v python3 >/dev/null || { skip "several nodes (needs node >= 20 with npm, and python3)"; finish nodes; }
workspace
PIDS=() ADDRESSES=()
stop_nodes() { local n; for n in "${!PIDS[@]}"; do [ -n "${PIDS[$n]}" ] && { kill -CONT "${PIDS[$n]}" 2>/dev/null; kill -KILL "${PIDS[$n]}" 2>/dev/null; wait "${PIDS[$n]}" 2>/dev/null; }; PIDS[$n]=; done; }
trap 'stop_nodes; stop_stores; rm -rf "$WORK"' EXIT
if ! need_versitygw >"$WORK/install.log" 2>&1; then tail -3 "$WORK/install.log"; skip "several nodes (needs go)"; finish nodes; fi
start_versitygw || { tail -3 "$WORK/versitygw.log"; fail "versitygw starts"; finish nodes; }
for n in $(seq 0 $((NODES - 1))); do ADDRESSES[$n]=127.0.0.1:$(free_port); done

# start_node N [flags...]: in the background.
start_node() {
  local n=$1; shift
  rm -f "$WORK/ready-$n"
  "$THALWEG_BIN" serve --node "n$n" --listen "${ADDRESSES[$n]}" --data "$WORK/data-$n" --store "$LOCATION" --commit-interval 5ms \
    --settle-after 1s --long-poll-timeout 500ms --allow-origin https://example.com --ready-file "$WORK/ready-$n" "$@" >"$WORK/node-$n.out" 2>>"$WORK/node-$n.log" &
  PIDS[$n]=$!
}
within() { local until=$((SECONDS + $1)); shift; until "$@"; do [ $SECONDS -lt $until ] || return 1; sleep 0.1; done; }
metric() { curl -s "http://${ADDRESSES[$1]}/metrics" | awk -v name="thalweg_$2" '$1 == name { printf "%.0f\n", $2 }'; }
is_whole() { [ "$(metric "$1" node_units_unserved)" = 0 ]; }
serves_none() { [ "$(metric "$1" node_units_served)" = 0 ] && is_whole "$1"; }
all_whole() { local n; for n in "${!PIDS[@]}"; do within 30 is_whole "$n" || return 1; done; }
# status N METHOD NAME [curl's arguments]
status() { local n=$1 method=$2 name=$3; shift 3; curl -s -o "$WORK/answer" -m 15 -w '%{http_code}' -X "$method" "$@" "http://${ADDRESSES[$n]}/v1/stream/$name"; }
says() { local expected=$1; shift; local found; found=$(status "$@"); [ "$found" = "$expected" ] || { echo "$found, not $expected: $(head -c 300 "$WORK/answer")"; return 1; }; }

for n in 0 1 2; do start_node $n; done
check "three nodes share the units" all_whole
shares() { [ "$(metric 0 node_units_served)" -ge 4 ] && [ "$(metric 1 node_units_served)" -ge 4 ] && [ "$(metric 2 node_units_served)" -ge 4 ]; }
check "each has its share" within 20 shares
check "every node takes every request" bash -c "
  for s in 1 2 3 4 5 6; do for n in ${ADDRESSES[*]}; do
    curl -fs -o /dev/null -X PUT http://\$n/v1/stream/any/\$s -H 'content-type: text/plain' || exit 1
    curl -fs -o /dev/null -X POST http://\$n/v1/stream/any/\$s -H 'content-type: text/plain' -d \"\$n;\" || exit 1
  done; [ \"\$(curl -fs http://${ADDRESSES[1]}/v1/stream/any/\$s)\" = '${ADDRESSES[0]};${ADDRESSES[1]};${ADDRESSES[2]};' ] || exit 1; done"
check "a list has the streams of all nodes" bash -c "[ \$(curl -fs 'http://${ADDRESSES[2]}/v1/stream/__ds/streams?prefix=any/' | grep -o '\"name\"' | wc -l) = 6 ]"
check "what only nodes may say is refused from others" says 403 0 GET any/1 -H 'thalweg-node: guess'
check "a grant of a client is not believed" bash -c "curl -fs http://${ADDRESSES[0]}/v1/stream/any/1 -H 'thalweg-grant: 9' -H 'thalweg-unit: 3' >/dev/null"
check "thalweg node ls shows them" bash -c "'$THALWEG_BIN' node ls --server http://${ADDRESSES[0]} 2>&1 | grep -q '16 units, each with an owner'"

# ---- the protocol, asked of a node that owns nothing

check "a node is drained" "$THALWEG_BIN" node drain --server "http://${ADDRESSES[0]}"
check "it gives its units away" within 30 serves_none 0
if [ "${SUITE:-1}" = 1 ]; then
  export DS_BASE_URL=http://${ADDRESSES[0]}
  run_vitest "$ROOT/tests/conformance" "$WORK/suite.json"
  read -r p f <<<"$VITEST"
  echo "through a node that owns nothing: $p of $EXPECTED passed, $f failed"
  PASSED=$((PASSED + p)) FAILED=$((FAILED + f))
fi
check "it takes its share again" "$THALWEG_BIN" node drain --undo --server "http://${ADDRESSES[0]}"
takes_share() { [ "$(metric 0 node_units_served)" -ge 4 ]; }
check "and serves it" within 30 takes_share

# ---- nodes that die, sleep and stop in order, while there are writers, readers and forks

LIST=$(IFS=,; echo "${ADDRESSES[*]}")
node "$ROOT/tests/nodes/model.mjs" "$LIST" --until "$WORK/enough" --out "$WORK/result" >"$WORK/model.out" 2>&1 & MODEL=$!
sleep 2
for kill in $(seq "$KILLS"); do
  n=$((RANDOM % NODES))
  case $((kill % 4)) in
    # Longer than any lease: another node has its units when it wakes up.
    1) kill -STOP "${PIDS[$n]}"; sleep 4; kill -CONT "${PIDS[$n]}" ;;
    # A restart in order: its units are handed over before.
    2) kill -TERM "${PIDS[$n]}"; wait "${PIDS[$n]}" 2>/dev/null; start_node $n ;;
    *) kill -KILL "${PIDS[$n]}"; wait "${PIDS[$n]}" 2>/dev/null; rm -rf "$WORK/data-$n"; sleep 0.$((RANDOM % 10)); start_node $n ;;
  esac
  within 40 is_whole $n || fail "all units have owners after step $kill"
  sleep 1.$((RANDOM % 10))
done
touch "$WORK/enough"
wait $MODEL; code=$?
head -c 1500 "$WORK/model.out"
check "nothing acknowledged is lost, doubled or moved by $KILLS deaths and sleeps" test $code = 0
check "something was acknowledged" test "$(grep -o '"acknowledged":[0-9]*' "$WORK/result" | cut -d: -f2)" -gt 200

# ---- a bucket that is away

kill -STOP $STORE_PID
sleep 4
check "without the bucket nothing is read that may be old" says 503 1 GET any/1
kill -CONT $STORE_PID
check "nodes go on when it answers again" within 60 all_whole
check "and serve" within 30 says 200 1 GET any/1
stop_nodes
finish nodes
