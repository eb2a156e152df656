#!/usr/bin/env bash
# The server under many connections at once, as the load generator has it; and the load generator and its tables themselves.
. "$(dirname "$0")/../lib.sh"
LOADGEN=${LOADGEN:-$CARGO_TARGET_DIR/release/thalweg-loadgen}
[ -x "$LOADGEN" ] || (cd "$ROOT" && cargo build --release --locked -p thalweg-loadgen) || { fail "the load generator is built"; finish load; }
workspace
OUT=
# load ARGUMENTS...: its last line is in OUT.
load() { OUT=$("$LOADGEN" --server "${BASE#http://}" --server-pid "$SERVER_PID" "$@" 2>"$WORK/load.err" | tail -1); [ -n "$OUT" ] || cat "$WORK/load.err"; }
# has KEY=VALUE...: OUT holds all of them; a value may be a pattern.
has() { local pair; for pair in "$@"; do grep -qE "(^| )$pair( |\$)" <<<"$OUT" || { echo "  not $pair: $OUT"; return 1; }; done; }

start_server --settle-after 1s --sse-lifetime 1s || { fail "the server starts"; finish load; }
load --connections 16 append --streams 100 --create --seconds 0.5 --warm 0.1
check "appends in a closed loop are all taken" has bad=0 'ops=[1-9][0-9]*' 'cpu_us=[0-9.]+'
load --connections 16 --depth 8 append --streams 100 --producers --seconds 0.5 --warm 0.1
check "pipelined appends of producers are taken in order, none twice" has bad=0 dup=0 'ops=[1-9][0-9]*'
load --connections 16 --threads 2 append --streams 5 --prefix j- --json --producers --create --seconds 0.5 --warm 0
check "JSON of several producers to one stream" has bad=0 dup=0 'ops=[1-9][0-9]*'
load --connections 8 append --streams 100 --rate 200 --seconds 1 --warm 0
check "at a rate, as many are asked as are due" has bad=0 'n=(199|200|201)'
load --connections 4 --depth 16 weave --streams 4 --prefix w- --messages 300 --size 1000 --others 50 --between 3
check "streams are filled with others between their messages" has bad=0 'ops=[1-9][0-9]*'
load --connections 4 replay --streams 4 --prefix w- --messages 300 --message-size 1000 --verify --seconds 0.3 --warm 0
check "each of them reads as it was written, from the journal" has bad=0 wrong=0 bytes_each=300000
for _ in $(seq 60); do curl -fs "$BASE/metrics" | grep -q '^thalweg_settle_lag_bytes 0$' && break; sleep 0.25; done
load --connections 4 replay --streams 4 --prefix w- --messages 300 --message-size 1000 --verify --seconds 0.5 --warm 0 --evict "$WORK/data"
check "and from objects, out of the page cache too" has bad=0 wrong=0 bytes_each=300000
load --connections 4 replay --streams 4 --prefix w- --messages 299 --message-size 1000 --verify --seconds 0.2 --warm 0
check "a replay that is not as expected is noticed" has 'wrong=[1-9][0-9]*' 'bad=[1-9][0-9]*'
load fanout --readers 200 --rate 50 --seconds 3 --warm 0
check "SSE readers that are asked to reconnect get every event once" has readers=200 deliveries=30000 missing=0 dup=0 bad=0 'reopened=[1-9][0-9]*'
load fanout --live long-poll --readers 200 --rate 20 --seconds 1 --warm 0 --stream polled
check "long-poll readers get every event once" has deliveries=4000 missing=0 dup=0 bad=0
load --connections 300 idle --settle 0.1
check "300 connections wait" has connections=300 refused=0 closed=0 'bytes_each=-?[0-9]+'

raw() { printf '%s\n' 'append|0|c|target|target|cpu<=0.5' 'append|0|c|target|target|ops>=3' 'append|1|c|peer|cpu|40' 'append|2|c|peer|cpu|20' 'append|3|c|peer|cpu|30' \
  'append|1|c|thalweg|cpu|10' 'append|2|c|thalweg|cpu|18' 'append|3|c|thalweg|cpu|12' 'append|1|c|thalweg|ops|2000' 'append|1|c|peer|ops|1000' 'append|1|c|peer|bad|2'; }
row=$(raw | awk -f "$ROOT/bench/streams/table.awk" | tail -1)
expected='| c | 2.0k (12.0 µs; 0.00 / 0.00) | 1.0k (30.0 µs; 0.00 / 0.00) **2 bad** | cpu 0.40 (0.25–0.90); ops 2.00 (2.00–2.00) | cpu ≤ 0.5; ops ≥ 3 | yes; **no** |'
[ "$row" = "$expected" ] || echo "  $row"
check "a table has medians, ratios, their range and what holds" test "$row" = "$expected"
finish load
