#!/usr/bin/env bash
# Side by side with the reference server, in one sitting: rounds are interleaved, the table holds medians.
#   ROUNDS=3 SECS=4 COUNTS="1 1000 10000" CONNS="64 256" SUBS="10 100 500" SERVERS="thalweg:durable peer:durable ..." run.sh
# The client shares the machine, so operations per second understate both servers: compare the server's CPU time per operation.
. "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-3} SECS=${SECS:-4} COUNTS=${COUNTS:-1 1000 10000} CONNS=${CONNS:-64 256} SUBS=${SUBS:-10 100 500}
SERVERS=${SERVERS:-thalweg:durable peer:durable thalweg:buffered peer:buffered}
OUT=${OUT:-$ROOT/bench/RESULTS.md}
need wrk; need curl; need_node || { echo "node >= 20 is not here"; exit 1; }
[[ $SERVERS == *thalweg* ]] && build
[[ $SERVERS == *peer* ]] && { need_peer || exit 1; }
mkdir -p "$SCRATCH"; WORK=$(mktemp -d "$SCRATCH/run-XXXXXX")
trap 'stop_server KILL; rm -rf "$WORK"' EXIT
RAW=$WORK/raw # lines: case|server|metric|value

note() { echo "$1|$2|$3|$4" >>"$RAW"; }
pick() { sed -nE "s/.*$2=([0-9.]+).*/\1/p" <<<"$1" | head -1; }

# load CASE SERVER wrk-arguments...: operations per second, CPU per operation, percentiles.
load() {
  local case=$1 server=$2 before after out rate bad; shift 2
  before=$(cpu_us); out=$(wrk -t1 -d"${SECS}s" --latency "$@" 2>&1 | grep '^RESULT'); after=$(cpu_us)
  rate=$(pick "$out" rps); bad=$(($(pick "$out" non2xx) + $(pick "$out" sockerr)))
  note "$case" "$server" ops "${rate:-0}"
  note "$case" "$server" cpu "$(awk -v a="$before" -v b="$after" -v r="${rate:-0}" -v s="$SECS" 'BEGIN {if (r > 0) printf "%.1f", (b - a) / (r * s); else print 0}')"
  note "$case" "$server" p50 "$(pick "$out" p50_us)"
  note "$case" "$server" p99 "$(pick "$out" p99_us)"
  note "$case" "$server" bad "${bad:-0}"
  echo "  $case: $out"
}

one_round() {
  local server=$1 folder=$WORK/$2 n c s out before after
  serve "$server" "$folder" || return
  echo "-- $server (load $(cut -d' ' -f1 /proc/loadavg))"
  for n in $COUNTS; do
    before=$(rss_kb)
    out=$(node "$BENCH/streams.mjs" create "$BASE" "/v1/stream/b$n-" "$n" 64); after=$(rss_kb)
    echo "  $out"
    if [ "$n" -ge 1000 ]; then
      note "create $n streams" "$server" ops "$(pick "$out" per_s)"
      note "memory per idle stream, of $n (B)" "$server" value "$(((after - before) * 1024 / n))"
    fi
    for c in $CONNS; do STREAMS=$n PREFIX=/v1/stream/b$n- load "append 256 B, $n streams, $c connections" "$server" -c"$c" -s "$BENCH/append.lua" "$BASE"; done
  done
  node "$BENCH/streams.mjs" fill "$BASE" /v1/stream/replay 2000 1024 >/dev/null
  for c in 8 64; do load "replay 2,000 x 1 KB, $c connections" "$server" -c$c -s "$BENCH/get.lua" "$BASE/v1/stream/replay?offset=-1"; done
  node "$BENCH/streams.mjs" fill "$BASE" /v1/stream/small 1 1024 >/dev/null
  load "read 1 KB, 64 connections" "$server" -c64 -s "$BENCH/get.lua" "$BASE/v1/stream/small?offset=-1"
  for s in $SUBS; do
    before=$(cpu_us); out=$(node "$BENCH/streams.mjs" fanout "$BASE" "/v1/stream/fan$s" "$s" 50 20); after=$(cpu_us)
    echo "  $out"
    note "SSE to $s readers" "$server" p50 "$(awk -v ms="$(pick "$out" p50_ms)" 'BEGIN {printf "%.0f", ms * 1000}')"
    note "SSE to $s readers" "$server" p99 "$(awk -v ms="$(pick "$out" p99_ms)" 'BEGIN {printf "%.0f", ms * 1000}')"
    note "SSE to $s readers" "$server" cpu "$(awk -v a="$before" -v b="$after" -v n=$((s * 50)) 'BEGIN {printf "%.1f", (b - a) / n}')"
  done
  note "memory at the end (MB)" "$server" value "$(($(rss_kb) / 1024))"
  stop_server KILL
  rm -rf "$folder"
}

HEADER=$(machine)
for round in $(seq "$ROUNDS"); do
  echo "== round $round of $ROUNDS"
  for server in $SERVERS; do one_round "$server" "$(tr : - <<<"$server")-$round"; done
done

table() {
  echo "## Streams, side by side"
  echo
  echo "$HEADER. Medians of $ROUNDS interleaved rounds of $SECS s; client on the same cores. \`peer\` is the crate durable-streams 0.1.5"
  echo "(durable: \`wal\`, buffered: \`memory\`). A cell is operations per second (server CPU µs per operation; p50 / p99 ms)."
  echo
  printf '| case |'; printf ' %s |' $SERVERS; echo
  printf '|---|'; for _ in $SERVERS; do printf -- '---|'; done; echo
  cut -d'|' -f1 "$RAW" | awk '!seen[$0]++' | while IFS= read -r case; do
    printf '| %s |' "$case"
    for server in $SERVERS; do
      value() { awk -F'|' -v c="$case" -v s="$server" -v m="$1" '$1 == c && $2 == s && $3 == m {print $4}' "$RAW" | median; }
      single=$(value value)
      if [ -n "$single" ]; then printf ' %s |' "$single"; continue; fi
      printf ' %s |' "$(awk -v o="$(value ops)" -v c="$(value cpu)" -v a="$(value p50)" -v b="$(value p99)" -v bad="$(value bad)" 'BEGIN {
        if (o == "" && c == "") {print "-"; exit}
        if (o != "") printf "%.1fk", o / 1000
        if (c != "") {printf "%s(%s µs", (o != "" ? " " : ""), c; if (a != "") printf "; %.2f / %.2f", a / 1000, b / 1000; printf ")"}
        if (bad > 0) printf " **%d bad**", bad}')"
    done
    echo
  done
}
table | tee "$OUT.part"
# Only this script's chapter is replaced.
{ [ -f "$OUT" ] && awk '/^## Streams, side by side/ {skip = 1; next} /^## / {skip = 0} !skip' "$OUT" || printf '# Results\n\n'; cat "$OUT.part"; } >"$OUT.new"
mv "$OUT.new" "$OUT"; rm -f "$OUT.part"
