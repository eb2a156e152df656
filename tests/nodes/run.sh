#!/usr/bin/env bash
# Three nodes that share a bucket of versitygw: any node takes any request, and clients lose nothing by nodes that are killed, put
# to sleep and restarted, by a bucket that is, and by cut networks between nodes and to the bucket (network.mjs).
# FAILURES (13): how many of these, in an order that has each kind once per 13. SUITE=0 leaves the conformance suite out.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../bucket/buckets.sh"
FAILURES=${FAILURES:-13} EXPECTED=338 NODES=3

need_npm && command -v python3 >/dev/null || { skip "several nodes (needs node >= 20 with npm, and python3)"; finish nodes; }
workspace
PIDS=() ADDRESSES=() REACHED=() BUCKETS=()
stop_nodes() { local n; for n in "${!PIDS[@]}"; do [ -n "${PIDS[$n]}" ] && { kill -CONT "${PIDS[$n]}" 2>/dev/null; kill -KILL "${PIDS[$n]}" 2>/dev/null; wait "${PIDS[$n]}" 2>/dev/null; }; PIDS[$n]=; done; }
trap 'stop_nodes; for one in "${NETWORK[@]}"; do kill "$one" 2>/dev/null; done; stop_stores; [ -n "${KEEP:-}" ] && cp -r "$WORK"/*.log "$WORK"/model.out "$WORK"/result "$WORK"/times "$KEEP"; rm -rf "$WORK"' EXIT
if ! need_versitygw >"$WORK/install.log" 2>&1; then tail -3 "$WORK/install.log"; skip "several nodes (needs go)"; finish nodes; fi
start_versitygw || { tail -3 "$WORK/versitygw.log"; fail "versitygw starts"; finish nodes; }
STORE_PORT=${LOCATION#*127.0.0.1:} STORE_PORT=${STORE_PORT%%&*}

# Each node reaches the bucket and the other nodes by ways of its own. One process for each kind: a storm of connections to a dead
# node delays nothing else.
declare -A CONTROL=() NETWORK=()
LINKS=()
for n in $(seq 0 $((NODES - 1))); do
  ADDRESSES[$n]=127.0.0.1:$(free_port) REACHED[$n]=$(free_port) BUCKETS[$n]=$(free_port)
  LINKS+=("bucket-$n:${BUCKETS[$n]}:$STORE_PORT" "node-$n:${REACHED[$n]}:${ADDRESSES[$n]#*:}")
done
for kind in bucket node; do
  CONTROL[$kind]=$(free_port)
  mapfile -t links < <(printf '%s\n' "${LINKS[@]}" | grep "^$kind")
  node "$ROOT/tests/nodes/network.mjs" "${CONTROL[$kind]}" "$WORK" "${links[@]}" >"$WORK/network-$kind.log" 2>&1 & NETWORK[$kind]=$!
  answers "${CONTROL[$kind]}" || { cat "$WORK/network-$kind.log"; fail "the network starts"; finish nodes; }
done
# path NAME MODE, as network.mjs has them.
path() {
  local kind=node
  [[ $1 = bucket-* ]] && kind=bucket
  curl -fs -m 20 -o /dev/null "http://127.0.0.1:${CONTROL[$kind]}/$1/$2" || fail "the path $1 becomes $2"
}

# start_node N [flags...]: in the background.
start_node() {
  local n=$1; shift
  rm -f "$WORK/ready-$n"
  "$THALWEG_BIN" serve --node "n$n" --listen "${ADDRESSES[$n]}" --advertise "http://127.0.0.1:${REACHED[$n]}" --data "$WORK/data-$n" \
    --store "${LOCATION/127.0.0.1:$STORE_PORT/127.0.0.1:${BUCKETS[$n]}}" --units 16 --commit-interval 20ms --settle-after 2s --long-poll-timeout 500ms \
    --allow-origin https://example.com --webhook-targets local --ready-file "$WORK/ready-$n" "$@" >"$WORK/node-$n.out" 2>>"$WORK/node-$n.log" &
  PIDS[$n]=$!
  echo $! >"$WORK/pid-$n"
}
# A node whose start is refused, as while the bucket is away, is started again: so does every supervisor.
revive() { local n; for n in "${!PIDS[@]}"; do kill -0 "${PIDS[$n]}" 2>/dev/null || { wait "${PIDS[$n]}" 2>/dev/null; start_node "$n"; }; done; }
kill_node() { kill -KILL "${PIDS[$1]}"; wait "${PIDS[$1]}" 2>/dev/null; rm -rf "$WORK/data-$1"; }
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
both_serve_some() {
  local ops served n
  ops=$(grep -oE 'tw[a-z0-9]*[._-][A-Za-z0-9_.-]+' "$WORK/token" | head -1)
  for n in 0 1; do
    served=$(curl -s -H "authorization: Bearer $ops" "http://${ADDRESSES[$n]}/metrics" | awk '$1 == "thalweg_node_units_served" { printf "%.0f", $2 }')
    [ "${served:-0}" -ge 2 ] || return 1
  done
}
shares() { [ "$(metric 0 node_units_served)" -ge 4 ] && [ "$(metric 1 node_units_served)" -ge 4 ] && [ "$(metric 2 node_units_served)" -ge 4 ]; }
check "each has its share" within 20 shares
check "every node takes every request" bash -c "
  for s in 1 2 3 4 5 6; do for n in ${ADDRESSES[*]}; do
    curl -fs -o /dev/null -X PUT http://\$n/v1/stream/any/\$s -H 'content-type: text/plain' || exit 1
    curl -fs -o /dev/null -X POST http://\$n/v1/stream/any/\$s -H 'content-type: text/plain' -d \"\$n;\" || exit 1
  done; [ \"\$(curl -fs http://${ADDRESSES[1]}/v1/stream/any/\$s)\" = '${ADDRESSES[0]};${ADDRESSES[1]};${ADDRESSES[2]};' ] || exit 1; done"
check "a list has the streams of all nodes" bash -c "[ \$(curl -fs 'http://${ADDRESSES[2]}/v1/stream/__ds/streams?prefix=any/' | grep -o '\"name\"' | wc -l) = 6 ]"
check "what only nodes may say is refused from others" says 403 0 GET any/1 -H 'thalweg-node: guess'
below() { [ "$(curl -s -o /dev/null -w '%{http_code}' "http://${ADDRESSES[0]}/v1/node/any")" = 404 ]; }
check "the list of nodes is at the path of administrators alone" below
check "a grant of a client is not believed" bash -c "curl -fs http://${ADDRESSES[0]}/v1/stream/any/1 -H 'thalweg-grant: 9' -H 'thalweg-unit: 3' >/dev/null"
check "thalweg node ls shows them" bash -c "'$THALWEG_BIN' node ls --server http://${ADDRESSES[0]} 2>&1 | grep -q '16 units, each with an owner'"

# ---- the protocol, asked of a node that owns nothing

for s in $(seq 32); do curl -fs -o /dev/null -X PUT "http://${ADDRESSES[0]}/v1/stream/list/$s" -H 'content-type: text/plain'; done
# list N: of node N, again and again until the file of that name is there: the status and how many streams it has.
list() {
  until [ -e "$WORK/listed" ]; do
    status=$(curl -s -m 5 -o "$WORK/list-$1" -w '%{http_code}' "http://${ADDRESSES[$1]}/v1/stream/__ds/streams?prefix=list/")
    echo "$status $(grep -o '"name"' "$WORK/list-$1" | wc -l)"
  done >"$WORK/lists-$1"
}
list 1 & LISTING=($!)
list 2 & LISTING+=($!)
check "a node is drained" "$THALWEG_BIN" node drain --server "http://${ADDRESSES[0]}"
check "it gives its units away" within 30 serves_none 0
touch "$WORK/listed"
wait "${LISTING[@]}"
check "a list has the streams of units that move, or is refused" bash -c "grep -q '^200 32\$' $WORK/lists-1 && ! cat $WORK/lists-1 $WORK/lists-2 | grep '^200' | grep -qv ' 32\$'"
check "a backup of a node is refused" bash -c "'$THALWEG_BIN' backup --to $WORK/backup --server http://${ADDRESSES[1]} 2>&1 | grep -q 'the streams of a node are in the bucket'"
check "and a check" bash -c "'$THALWEG_BIN' check --server http://${ADDRESSES[1]} 2>&1 | grep -q 'the streams of a node are in the bucket'"
check "a server without --node is refused the prefix" bash -c "timeout 30 '$THALWEG_BIN' serve --data $WORK/data-other --listen 127.0.0.1:0 --store '$LOCATION' 2>&1 | grep -q 'belongs to nodes'"
if [ "${SUITE:-1}" = 1 ]; then
  export DS_BASE_URL=http://${ADDRESSES[0]} DS_SUBSCRIPTIONS=1
  run_vitest "$ROOT/tests/conformance" "$WORK/suite.json"
  read -r p f <<<"$VITEST"
  echo "through a node that owns nothing: $p of $EXPECTED passed, $f failed"
  PASSED=$((PASSED + p)) FAILED=$((FAILED + f))
fi
check "it takes its share again" "$THALWEG_BIN" node drain --undo --server "http://${ADDRESSES[0]}"
takes_share() { [ "$(metric 0 node_units_served)" -ge 4 ]; }
check "and serves it" within 30 takes_share

# ---- nodes, networks and a bucket that fail, while there are writers, readers, forks, short lives and subscriptions

LIST=$(IFS=,; echo "${ADDRESSES[*]}")
MEASURING=$(free_port)
node "$ROOT/tests/nodes/model.mjs" "$LIST" --until "$WORK/enough" --out "$WORK/result" --control "$MEASURING" --fork-every $((40 + FAILURES * 2)) >"$WORK/model.out" 2>&1 & MODEL=$!
node "$ROOT/tests/nodes/subscriptions.mjs" "$LIST" --until "$WORK/enough" --out "$WORK/woken" >"$WORK/subscriptions.out" 2>&1 & SUBSCRIPTIONS=$!
answers "$MEASURING"
# measured KIND [N]: when all streams have been appended to once more, in ms from now, without node N's help. What fails without
# a unit is a kind of its own: nobody may miss it.
measured() {
  local kind=$1
  [ -n "${2:-}" ] && [ "$HAD" = 0 ] && kind=idle_$kind
  curl -s -m 150 "http://127.0.0.1:$MEASURING/measure?without=${2:-}" | sed -E "s/^/$kind /; s/\$/\n/" >>"$WORK/times"
}
seconds() { sleep "$(($1 + RANDOM % $2)).$((RANDOM % 10))"; }
# step KIND: one thing that fails, until it is mended.
step() {
  local n=$((RANDOM % NODES)) other how measuring
  other=$(((n + 1 + RANDOM % 2) % NODES))
  how=$([ $((RANDOM % 2)) = 0 ] && echo reset || echo silent)
  HAD=$(metric $n node_units_served)
  case $1 in
    # A lost machine, whose successor comes later, or at once.
    killed) kill_node $n; measured killed $n; start_node $n ;;
    replaced) kill_node $n; measured replaced $n & measuring=$!; sleep 0.$((RANDOM % 10)); start_node $n; wait $measuring ;;
    # Longer than any lease: another node has its units when it wakes up.
    sleeps) kill -STOP "${PIDS[$n]}"; measured sleeps $n; seconds 3 2; kill -CONT "${PIDS[$n]}" ;;
    # A restart in order: its units are handed over before.
    stopped) kill -TERM "${PIDS[$n]}"; measured stopped $n & measuring=$!; wait "${PIDS[$n]}" 2>/dev/null; start_node $n; wait $measuring ;;
    bucket_cut) path "bucket-$n" $how; measured bucket_cut $n; seconds 2 3; path "bucket-$n" open ;;
    # What it asks of the bucket happens, and it does not learn of it.
    bucket_deaf) path "bucket-$n" deaf; measured bucket_deaf $n; seconds 2 3; path "bucket-$n" open ;;
    bucket_slow) path "bucket-$n" slow; measured bucket_slow; seconds 3 3; path "bucket-$n" open ;;
    way_cut) path "$n-$other" $how; seconds 3 4; path "$n-$other" open; measured way_cut ;;
    ways_cut) path "$n-$other" $how; path "$other-$n" $how; seconds 3 4; path "$n-$other" open; path "$other-$n" open; measured ways_cut ;;
    way_deaf) path "$n-$other" deaf; seconds 2 3; path "$n-$other" open; measured way_deaf ;;
    bucket_killed) kill -KILL $STORE_PID; wait $STORE_PID 2>/dev/null; seconds 0 4; start_versitygw "$STORE_PORT"; measured bucket_killed ;;
    all_killed) for n in 0 1 2; do kill_node $n; done; for n in 0 1 2; do start_node $n; done; measured all_killed ;;
    all_and_bucket)
      kill -KILL $STORE_PID; wait $STORE_PID 2>/dev/null
      for n in 0 1 2; do kill_node $n; done
      for n in 0 1 2; do start_node $n; done
      seconds 0 3; start_versitygw "$STORE_PORT"; revive; measured all_and_bucket ;;
  esac
}
KINDS=(killed sleeps bucket_cut stopped way_cut replaced bucket_deaf ways_cut bucket_killed bucket_slow all_killed way_deaf all_and_bucket)
# What it takes while nothing fails.
for number in 1 2 3; do sleep 1; measured nothing; done
for number in $(seq "$FAILURES"); do
  kind=${KINDS[$(((number - 1) % ${#KINDS[@]}))]}
  # One time in two while units still move to the nodes that were started last.
  [ $((number % 2)) = 0 ] || within 30 shares || fail "each has its share before step $number ($kind)"
  step "$kind"
  revived_all_whole() { revive; local n; for n in "${!PIDS[@]}"; do is_whole "$n" || return 1; done; }
  within 60 revived_all_whole || fail "all units have owners after step $number ($kind)"
  kill -0 $MODEL 2>/dev/null || { fail "the model ends before step $number ($kind) is over"; break; }
  sleep 0.$((RANDOM % 10))
done
touch "$WORK/enough"
wait $MODEL; code=$?
head -c 3000 "$WORK/model.out"
check "nothing acknowledged is lost, doubled or moved by $FAILURES failures" test $code = 0
wait $SUBSCRIPTIONS; code=$?
head -c 3000 "$WORK/subscriptions.out"
check "every acknowledged message reaches the workers of both subscriptions" test $code = 0
check "something was acknowledged" test "$(grep -o '"acknowledged":[0-9]*' "$WORK/result" | cut -d: -f2)" -gt 200
# The longest wait of all streams after each failure, in ms. Of those that are no deaths of nodes, the failure itself is a part.
node -e '
  const lines = require("fs").readFileSync(process.argv[1], "utf8").split("\n").filter((line) => line.includes("worst_ms"))
  const kinds = {}
  for (const line of lines) { const [kind] = line.split(" ", 1); (kinds[kind] ??= []).push(JSON.parse(line.slice(kind.length + 1)).worst_ms) }
  kinds["one node killed"] = [...(kinds.killed ?? []), ...(kinds.replaced ?? [])]
  for (const [kind, times] of Object.entries(kinds)) {
    times.sort((a, b) => a - b)
    const at = (part) => times[Math.min(times.length - 1, Math.floor(times.length * part))]
    console.log(`without service, ${kind}: ${times.length} times, p50 ${at(0.5)}, p95 ${at(0.95)}, p99 ${at(0.99)}, worst ${times.at(-1)} ms`)
  }
  const killed = kinds["one node killed"]
  // A few times say nothing of a 99th percentile, and the machine may be busy.
  const [p50, p99] = killed.length >= 20 ? [3_000, 6_000] : [6_000, 12_000]
  process.exit(killed[killed.length >> 1] <= p50 && killed[Math.floor(killed.length * 0.99)] <= p99 ? 0 : 1)' "$WORK/times"
check "after a kill all streams are served again in time" test $? = 0

# ---- a bucket that is away

kill -STOP $STORE_PID
sleep 4
check "without the bucket nothing is read that may be old" says 503 1 GET any/1
kill -CONT $STORE_PID
check "nodes go on when it answers again" within 60 all_whole
check "and serve" within 30 says 200 1 GET any/1
stop_nodes

# ---- nodes with tokens

"$THALWEG_BIN" token new --name ops --admin '*' >"$WORK/tokens.toml" 2>"$WORK/token"
for n in 0 1; do
  "$THALWEG_BIN" serve --node "n$n" --listen "${ADDRESSES[$n]}" --data "$WORK/data-of-tokens-$n" --store "file://$WORK/bucket-of-tokens" \
    --tokens "$WORK/tokens.toml" >"$WORK/node-$n.out" 2>>"$WORK/node-$n.log" &
  PIDS[$n]=$!
done
check "two nodes with tokens share their units" within 30 both_serve_some
SIGNED=$("$THALWEG_BIN" token sign --data "$WORK/data-of-tokens-0" --prefix t --scope admin)
signed() { curl -s -o /dev/null -m 15 -w '%{http_code}' -H "authorization: Bearer $SIGNED" "$@"; }
all_signed() {
  local s n found
  for s in 1 2 3 4 5 6; do for n in 0 1; do
    found=$(signed -X PUT "http://${ADDRESSES[$n]}/v1/stream/t/$s" -H 'content-type: text/plain')
    [[ $found = 20[01] ]] || { echo "node $n: $found"; return 1; }
  done; done
}
check "a token that one node's key has signed is valid at all nodes" all_signed

# ---- strangers: at a node's address, in the bucket, on the machine

# The head alone: its body is not waited for.
by_head() {
  exec 3<>"/dev/tcp/${ADDRESSES[0]%:*}/${ADDRESSES[0]#*:}" || return 1
  printf 'POST /v1/node/news HTTP/1.1\r\nhost: x\r\ncontent-length: 30000000\r\n\r\n' >&3
  timeout 5 head -1 <&3 | grep -q ' 403 '
}
check "who is no node is refused at the paths of nodes by the head" by_head
mkdir -m 755 "$WORK/open" && touch "$WORK/open/something"
check "a bucket in a folder that others may enter is refused" bash -c "timeout 20 '$THALWEG_BIN' serve --node x --listen 127.0.0.1:0 --advertise http://127.0.0.1:1 --data $WORK/data-open --store 'file://$WORK/open' 2>&1 | grep -q 'chmod 700'"
AT=$WORK/bucket-of-tokens/n
for one in "$AT"/*; do echo junk >"$one.18446744073709551615"; done
echo junk >"$AT/$(printf '\033')[31mx-1"
echo junk >"$AT/x-1"
truncate -s 300M "$AT/y-1"
start_third() {
  "$THALWEG_BIN" serve --node n2 --listen "${ADDRESSES[2]}" --data "$WORK/data-of-tokens-2" --store "file://$WORK/bucket-of-tokens" \
    --tokens "$WORK/tokens.toml" >"$WORK/node-2.out" 2>>"$WORK/node-2.log" &
  PIDS[2]=$!
  within 20 reached 2
}
reached() { [[ $(signed "http://${ADDRESSES[$1]}/v1/stream/t/1") = 200 ]]; }
check "objects of strangers in the bucket stop no node from starting" start_third
serves_all() { local s n; for s in 1 2 3 4 5 6; do for n in 0 1 2; do [[ $(signed "http://${ADDRESSES[$n]}/v1/stream/t/$s") = 200 ]] || return 1; done; done; }
check "nor from serving" serves_all
small() { local n; for n in 0 1 2; do [ "$(awk '/VmRSS/ { print $2 }' "/proc/${PIDS[$n]}/status")" -lt 250000 ] || return 1; done; }
check "nor fill their memory" small
check "store ls shows no control characters" bash -c "! '$THALWEG_BIN' store ls --store 'file://$WORK/bucket-of-tokens' 2>&1 | grep -q \$'\\033'"
# Readers that wait for what comes next, at whichever node has the stream: a take-over must not skip what is appended then.
WAITING=()
for s in 1 2 3 4 5 6; do
  curl -s -m 60 -o "$WORK/waits-$s" -H "authorization: Bearer $SIGNED" "http://${ADDRESSES[0]}/v1/stream/t/$s?offset=now&live=long-poll" & WAITING+=($!)
done
sleep 1.5
# Another process takes the address of a killed node at once, and says yes to everything.
kill -KILL "${PIDS[1]}"; wait "${PIDS[1]}" 2>/dev/null; PIDS[1]=
node -e '
  require("http").createServer((request, response) => { response.writeHead(204, { "stream-next-offset": "forged", "stream-up-to-date": "true" }); response.end() })
    .listen(Number(process.argv[1]), "127.0.0.1")' "${ADDRESSES[1]#*:}" & IMPOSTOR=$!
answers "${ADDRESSES[1]#*:}"
serves_two() { local s; for s in 1 2 3 4 5 6; do [[ $(signed "http://${ADDRESSES[0]}/v1/stream/t/$s") = 200 ]] || return 1; done; }
believed=0 appended=0
for s in $(seq 60); do
  curl -s -m 15 -o /dev/null -D "$WORK/head" -H "authorization: Bearer $SIGNED" -H 'content-type: text/plain' -d "x" "http://${ADDRESSES[0]}/v1/stream/t/$((s % 6 + 1))"
  grep -qi forged "$WORK/head" && believed=$((believed + 1))
  grep -q ' 204' "$WORK/head" && appended=$((appended + 1))
  [ "$s" = 12 ] && within 20 serves_two
done
wait "${WAITING[@]}"
got_next() { local s; for s in 1 2 3 4 5 6; do [ -s "$WORK/waits-$s" ] || { echo "the reader of stream $s got nothing"; return 1; }; done; }
check "readers that wait from now on skip nothing when a node dies" got_next
check "what another process says at the address of a dead node is not believed" test "$believed" = 0 -a "$appended" -gt 20
kill $IMPOSTOR; wait $IMPOSTOR 2>/dev/null
# The announcement of a dead node is replaced before it is stale.
kill -KILL "${PIDS[2]}"; wait "${PIDS[2]}" 2>/dev/null; PIDS[2]=
for one in "$AT"/n2-*; do echo junk >"$one"; done
check "a dead node's streams are served although its announcement was replaced" within 20 serves_two
OPS=$(grep -oE 'tw[a-z0-9]*[._-][A-Za-z0-9_.-]+' "$WORK/token" | head -1)
is_alone() { [ "$(curl -s -H "authorization: Bearer $OPS" "http://${ADDRESSES[0]}/metrics" | awk '$1 == "thalweg_node_units_served" { printf "%.0f", $2 }')" = 6 ]; }
check "all of its units" within 20 is_alone
stop_nodes
# ---- a bucket that is emptied, and one that is not whole

stop_nodes
LOST=127.0.0.1:$(free_port)
mkdir -m 700 "$WORK/lost"
# lone [flags...]: a node that is alone in a bucket.
lone() { "$THALWEG_BIN" serve --node lone --listen "$LOST" --advertise "http://$LOST" --units 2 --store "file://$WORK/lost" --ready-file "$WORK/lost.ready" "$@"; }
ended() { ! kill -0 "$1" 2>/dev/null; }
lone --data "$WORK/data-lost" >/dev/null 2>"$WORK/lost.log" & PIDS=($!)
check "a node is alone in a bucket" within 20 curl -fs -o /dev/null -X PUT "http://$LOST/v1/stream/one"
mkdir "$WORK/aside" && mv "$WORK"/lost/* "$WORK/aside/"
check "it stops when the bucket is emptied" within 40 ended "${PIDS[0]}"
check "and says why" grep -q 'it was emptied, or replaced' "$WORK/lost.log"
check "nor does it start on what is left" bash -c "timeout 20 '$THALWEG_BIN' serve --node lone --listen '$LOST' --advertise 'http://$LOST' --data $WORK/data-lost --store 'file://$WORK/lost' 2>&1 | grep -q 'it was emptied, or replaced'"
check "nor does anything of it make units in the empty one" test ! -e "$WORK/lost/m"
rm -rf "$WORK"/lost/* && cp -r "$WORK"/aside/* "$WORK/lost/" && rm "$WORK/lost/units"
check "a check says what a prefix without units lacks" bash -c "'$THALWEG_BIN' store check --store 'file://$WORK/lost' 2>&1 | grep -q 'lacks the object .units.'"
check "and no node starts on it" bash -c "timeout 20 '$THALWEG_BIN' serve --node lone --listen '$LOST' --advertise 'http://$LOST' --data $WORK/data-new --store 'file://$WORK/lost' 2>&1 | grep -q 'lacks the object .units.'"
rm -r "$WORK/lost/m"
check "nor on the beginning of a copy" bash -c "timeout 20 '$THALWEG_BIN' serve --node lone --listen '$LOST' --advertise 'http://$LOST' --data $WORK/data-new --store 'file://$WORK/lost' 2>&1 | grep -q 'lacks the object .units.'"
head -c 40 "$WORK/aside/units" >"$WORK/lost/units"
check "a check says that this object is damaged" bash -c "'$THALWEG_BIN' store check --store 'file://$WORK/lost' 2>&1 | grep -q 'object .units. is damaged'"
cp -r "$WORK/aside/m" "$WORK/lost/" && cp "$WORK/aside/units" "$WORK/lost/units"
lone --data "$WORK/data-lost" >/dev/null 2>>"$WORK/lost.log" & PIDS=($!)
check "with everything put back it serves again" within 30 curl -fs -o /dev/null "http://$LOST/v1/stream/one"
# Another history begins in its place, while it sleeps.
kill -STOP "${PIDS[0]}"
rm -rf "$WORK"/lost/*
SECOND=127.0.0.1:$(free_port)
"$THALWEG_BIN" serve --node second --listen "$SECOND" --advertise "http://$SECOND" --units 2 --data "$WORK/data-second" --store "file://$WORK/lost" --ready-file "$WORK/second.ready" >/dev/null 2>"$WORK/second.log" & PIDS+=($!)
check "another prefix begins where one was emptied" within 20 curl -fs -o /dev/null -X PUT "http://$SECOND/v1/stream/one" -H 'content-type: text/plain'
second() { curl -fs -o /dev/null -X POST "http://$SECOND/v1/stream/one" -H 'content-type: text/plain' -d "$1"; }
check "it takes appends" second begun
(cd "$WORK/lost" && find . -path './[jdm]/*' -type f | sort) >"$WORK/second.before"
kill -CONT "${PIDS[0]}"
curl -s -m 5 -o /dev/null -X POST "http://$LOST/v1/stream/one" -H 'content-type: application/octet-stream' -d late
check "who owned the first one stops" within 40 ended "${PIDS[0]}"
check "and removed nothing of the second" bash -c "cd '$WORK/lost' && while read -r one; do [ -e \"\$one\" ] || { echo \"\$one is gone\"; exit 1; }; done <'$WORK/second.before'"
check "which takes appends as before" second -goes-on
kill -KILL "${PIDS[1]}"; wait "${PIDS[1]}" 2>/dev/null
PIDS=()
# The root of a unit is set back: its journal begins later by now.
lone2() { "$THALWEG_BIN" serve --node second --listen "$SECOND" --advertise "http://$SECOND" --data "$WORK/data-second" --store "file://$WORK/lost" --settle-after 1s >/dev/null 2>>"$WORK/second.log" & PIDS=($!); }
lone2
content() { [ "$(curl -fs "http://$SECOND/v1/stream/one?offset=-1")" = "$1" ]; }
check "what it acknowledged is there" within 20 content begun-goes-on
sleep 3; cp -r "$WORK/lost/m" "$WORK/roots"
for n in 1 2 3; do check "it goes on" second "-$n"; sleep 3; done
sleep 1
kill -KILL "${PIDS[0]}"; wait "${PIDS[0]}" 2>/dev/null
cp -r "$WORK/lost" "$WORK/intact"; cp "$WORK"/roots/* "$WORK/lost/m/"
check "a check tells a root of another time" bash -c "'$THALWEG_BIN' store check --store 'file://$WORK/lost' 2>&1 | grep -q 'is of another time'"
lone2
refuses_unit() { grep -q 'is of another time' "$WORK/second.log"; }
check "its unit is refused" within 20 refuses_unit
stop_nodes
rm -rf "$WORK"/lost/* && cp -r "$WORK"/intact/* "$WORK/lost/" && rm -rf "$WORK"/lost/j/*
check "a check tells that a journal is missing" bash -c "'$THALWEG_BIN' store check --store 'file://$WORK/lost' 2>&1 | grep -q 'was open in term'"
lone2
refused_twice() { [ "$(grep -Ec 'unit=1 .*was open in term' "$WORK/second.log")" -ge 2 ]; }
check "its units are refused again and again" within 20 refused_twice
stop_nodes
check "a check still tells it" bash -c "'$THALWEG_BIN' store check --store 'file://$WORK/lost' 2>&1 | grep -q 'was open in term'"
rm -rf "$WORK"/lost/* && cp -r "$WORK"/intact/* "$WORK/lost/"
lone2
check "with all of one time it serves everything" within 20 content begun-goes-on-1-2-3
cp "$WORK"/roots/* "$WORK/lost/m/"
takes_none() { ! second .; }
check "an owner whose root is set back while it lives takes no more appends" within 20 takes_none
stop_nodes

finish nodes
