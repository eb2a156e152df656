#!/usr/bin/env bash
# Appends that are acknowledged when a bucket has them, beside peers, by turns in one sitting over one store:
#   thalweg        --durability replicated, one server
#   nodes          the same on three nodes, whose first one takes all requests; nodes:16 with so many units instead of 6
#   s2             s2-lite (the crate of that name), SlateDB in the same bucket; one record per request
#   thalweg-local  durable on the local disk, with the bucket behind it
#   tier           the reference server durable-streams, durable on the local disk, whose sealed segments go to the bucket
# The first three promise the same, and the last two.
#   WHO="thalweg nodes s2" LATENCIES="0 10 50" CONNS="64 1000" ROUNDS=2 SECS=6 bench/bucket/peers.sh
. "$(dirname "$0")/../streams/lib.sh"
. "$ROOT/tests/bucket/buckets.sh"
S2_VERSION=0.43.4 TIER_VERSION=0.1.5
WHO=${WHO:-thalweg s2 thalweg-local tier} LATENCIES=${LATENCIES:-0 10 50} CONNS=${CONNS:-64 1000} ROUNDS=${ROUNDS:-2}
SECS=${SECS:-6} WARM=${WARM:-2} INTERVAL=${INTERVAL:-5ms} STREAMS=${STREAMS:-1000} BASIN=bench-basin
S2=${S2:-$CACHE/s2-lite-$S2_VERSION/bin/server} TIER=${TIER:-$CACHE/peer-tier/bin/durable-streams-server}
need_node || { echo "node >= 20 is not here"; exit 1; }
need_versitygw || { echo "versitygw cannot be built: it needs go"; exit 1; }
[[ " $WHO " != *" s2 "* ]] || [ -x "$S2" ] || cargo install s2-lite --version $S2_VERSION --locked --root "${S2%/bin/*}" || exit 1
[[ " $WHO " != *" tier "* ]] || [ -x "$TIER" ] || cargo install durable-streams --version $TIER_VERSION --locked --features tier --root "${TIER%/bin/*}" || exit 1
build
workspace
NETWORK= OTHERS=()
stop_all() { local one; for one in "${OTHERS[@]}"; do kill -KILL "$one"; wait "$one" 2>/dev/null; done; OTHERS=(); stop_server "$@"; }
trap 'stop_all KILL; [ -n "$NETWORK" ] && kill $NETWORK; stop_stores; rm -rf "$WORK"' EXIT
start_versitygw || { tail -3 "$WORK/versitygw.log"; exit 1; }
STORE_PORT=${LOCATION#*127.0.0.1:} STORE_PORT=${STORE_PORT%%&*}
count() { curl -s "http://127.0.0.1:$COUNTS/" | sed -E "s/.*\"$1\":([0-9]+).*/\1/"; }
servers_cpu_us() { local one; for one in "$SERVER_PID" "${OTHERS[@]}"; do awk '{sub(/.*\) /, ""); print $12 + $13}' "/proc/$one/stat"; done | awk -v t="$TICKS" '{ all += $1 } END { printf "%.0f", all / t * 1e6 }'; }
store_cpu_us() { awk -v t="$TICKS" '{sub(/.*\) /, ""); printf "%.0f", ($12 + $13) / t * 1e6}' "/proc/$STORE_PID/stat"; }

# begin WHO PREFIX: a server with nothing, whose data in the bucket is below the prefix. Sets APPEND, the load's own flags.
begin() {
  local who=$1 prefix=$2 at=${LOCATION/127.0.0.1:$STORE_PORT/127.0.0.1:$NEAR} port
  rm -rf "$WORK/data"; APPEND=
  at=${at/\/test?/\/$prefix?}
  case $who in
    thalweg) serve thalweg:replicated "$WORK/data" --store "$at" --commit-interval "$INTERVAL" --max-connections 20000 || return 1
      until [ "$(metric replicated_units)" = 1 ]; do sleep 0.1; done ;;
    nodes*)
      local n units=6; [ "$who" = nodes ] || units=${who#nodes:}
      for n in 3 2 1; do
        [ "$n" = 3 ] || OTHERS+=("$SERVER_PID")
        port=$(free_port) ADDRESS=127.0.0.1:$port BASE=http://127.0.0.1:$port
        "$THALWEG_BIN" serve --node "n$n" --units "$units" --listen "$ADDRESS" --advertise "$BASE" --data "$WORK/data/$n" --store "$at" --commit-interval "$INTERVAL" \
          --max-connections 20000 >/dev/null 2>"$WORK/node-$n.log" &
        SERVER_PID=$!
        until curl -fs -o /dev/null "$BASE/health"; do kill -0 $SERVER_PID 2>/dev/null || { tail -3 "$WORK/node-$n.log"; return 1; }; sleep 0.05; done
      done
      # Until each has its share.
      until [ "$(metric node_units_served)" -ge $((units / 3)) ] && [ "$(metric node_units_unserved)" = 0 ]; do sleep 0.1; done ;;
    # Names are made once it is known that they are none of the bucket's.
    thalweg-local) serve thalweg:durable "$WORK/data" --store "$at" --max-connections 20000 || return 1
      until [ "$(metric replicated_units)" = 1 ]; do sleep 0.1; done ;;
    s2)
      port=$(free_port) ADDRESS=127.0.0.1:$port BASE=http://127.0.0.1:$port
      # The log of SlateDB is written to the bucket as often as thalweg sends batches.
      AWS_ACCESS_KEY_ID=$KEY AWS_SECRET_ACCESS_KEY=$SECRET AWS_REGION=us-east-1 AWS_ENDPOINT_URL_S3=http://127.0.0.1:$NEAR AWS_ALLOW_HTTP=true \
        SL8_FLUSH_INTERVAL=$INTERVAL "$S2" --bucket "$BUCKET" --path "$prefix" --port "$port" --no-dashboard >"$WORK/s2.log" 2>&1 &
      SERVER_PID=$!
      until curl -fs "$BASE/health" >/dev/null; do kill -0 $SERVER_PID 2>/dev/null || { tail -3 "$WORK/s2.log"; return 1; }; sleep 0.05; done
      curl -fs -o /dev/null -X POST "$BASE/v1/basins" -H 'content-type: application/json' -d "{\"basin\":\"$BASIN\",\"config\":{\"create_stream_on_append\":true}}" || { tail -3 "$WORK/s2.log"; return 1; }
      APPEND="--s2-basin $BASIN" ;;
    tier)
      port=$(free_port) ADDRESS=127.0.0.1:$port BASE=http://127.0.0.1:$port
      DS_S3_ACCESS_KEY_ID=$KEY DS_S3_SECRET_ACCESS_KEY=$SECRET "$TIER" --host 127.0.0.1 --port "$port" --data-dir "$WORK/data" --durability wal --tier s3 \
        --tier-endpoint "http://127.0.0.1:$NEAR" --tier-region us-east-1 --tier-bucket "$BUCKET" --tier-key-prefix "$prefix" >"$WORK/tier.log" 2>&1 &
      SERVER_PID=$!
      until curl -fs "$BASE/health" >/dev/null; do kill -0 $SERVER_PID 2>/dev/null || { tail -3 "$WORK/tier.log"; return 1; }; sleep 0.05; done ;;
  esac
  # s2 makes its streams when they are appended to: once, before anything is counted.
  if [ "$who" = s2 ]; then load --connections 64 append --streams "$STREAMS" $APPEND --seconds 4 --warm 0; else load --connections 64 create --streams "$STREAMS"; fi
}

machine
echo "thalweg $("$THALWEG_BIN" --version), s2-lite $S2_VERSION, durable-streams $TIER_VERSION, versitygw $VERSITYGW_VERSION; $INTERVAL between batches, 256 bytes, $STREAMS streams, $SECS s"
echo "| store's latency | connections | round | who | appends/s | CPU, µs | the store's CPU, µs | PUTs per 1,000 | p50, ms | p99, ms | bad | load |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|"
for latency in $LATENCIES; do
  NEAR=$(free_port) COUNTS=$(free_port)
  node "$ROOT/bench/bucket/slow.mjs" "$NEAR" "$STORE_PORT" "$latency" "$COUNTS" & NETWORK=$!
  answers "$COUNTS"
  for round in $(seq "$ROUNDS"); do
    for who in $WHO; do
      begin "$who" "$who-$latency-$round" || { echo "| $latency ms | | $round | $who | does not start |"; stop_all KILL; continue; }
      for conns in $CONNS; do
        before=$(count PUT) spent=$(store_cpu_us) served=$(servers_cpu_us)
        # shellcheck disable=SC2086
        load --connections "$conns" append --streams "$STREAMS" $APPEND --seconds "$SECS" --warm "$WARM" || { echo "| $latency ms | $conns | $round | $who | fails |"; continue; }
        [ -z "${SHOW:-}" ] || echo "$OUT"
        awk -v l="$latency" -v c="$conns" -v r="$round" -v w="$who" -v rate="$(field per_s)" -v cpu="$(($(servers_cpu_us) - served))" -v p50="$(field p50_us)" -v p99="$(field p99_us)" -v bad="$(field bad)" \
          -v n="$(($(count PUT) - before))" -v store="$(($(store_cpu_us) - spent))" -v secs="$((SECS + WARM))" -v load="$(cut -d' ' -f1 /proc/loadavg)" 'BEGIN {
          printf "| %s ms | %s | %s | %s | %.0f | %.1f | %.1f | %.2f | %.1f | %.1f | %s | %s |\n", l, c, r, w, rate, cpu / (rate * secs), store / (rate * secs), n / (rate * secs) * 1000, p50 / 1000, p99 / 1000, bad, load }'
      done
      stop_all
    done
  done
  kill $NETWORK; wait $NETWORK 2>/dev/null; NETWORK=
done
