#!/usr/bin/env bash
# Replicated appends against a store of a stated latency: appends and PUTs per second, and latencies.
#   LATENCIES="0 10 50" CONNS="64 1000 10000" SECS=6 INTERVALS="50ms 5ms" bench/bucket/run.sh
. "$(dirname "$0")/../streams/lib.sh"
. "$ROOT/tests/bucket/buckets.sh"
LATENCIES=${LATENCIES:-0 10 50} CONNS=${CONNS:-64 1000 10000} SECS=${SECS:-6} WARM=${WARM:-2} INTERVALS=${INTERVALS:-50ms 5ms}
need_node || { echo "node >= 20 is not here"; exit 1; }
need_versitygw || { echo "versitygw cannot be built: it needs go"; exit 1; }
build
workspace
PROXY=
trap 'stop_server KILL; [ -n "$PROXY" ] && kill $PROXY; stop_stores; rm -rf "$WORK"' EXIT
start_versitygw || { tail -3 "$WORK/versitygw.log"; exit 1; }
STORE_PORT=${LOCATION#*127.0.0.1:} STORE_PORT=${STORE_PORT%%&*}
figure() { curl -s "$BASE/metrics" | awk -v name="thalweg_$1" '$1 == name { print $2 }'; }
puts() { figure 'store_requests_total{kind="put"}'; }
put_seconds() { figure 'store_request_seconds_total{kind="put"}'; }

echo "$(date -u '+%F %H:%M') UTC, load $(cut -d' ' -f1 /proc/loadavg), $(nproc) cores; the store is versitygw on the same machine"
echo "| store's latency | interval | connections | appends/s | CPU, µs | PUTs per 1,000 appends | PUT, ms | p50, ms | p99, ms |"
echo "|---|---|---|---|---|---|---|---|---|"
for latency in $LATENCIES; do
  port=$(free_port)
  node "$BENCH/../bucket/slow.mjs" "$port" "$STORE_PORT" "$latency" & PROXY=$!
  sleep 0.5
  for interval in $INTERVALS; do
    rm -rf "$WORK/data"
    # A prefix of its own, through the slow network.
    at=${LOCATION/127.0.0.1:$STORE_PORT/127.0.0.1:$port}; at=${at/\/test?/\/b$latency-$interval?}
    serve thalweg:replicated "$WORK/data" --store "$at" --commit-interval "$interval" --max-connections 20000 || exit 1
    until [ "$(figure replicated_units)" = 1 ]; do sleep 0.1; done
    load --connections 64 create --streams 1000 || exit 1
    for conns in $CONNS; do
      before=$(puts) seconds=$(put_seconds)
      load --connections "$conns" append --streams 1000 --seconds "$SECS" --warm "$WARM" || continue
      after=$(puts) spent=$(put_seconds)
      [ -z "${SHOW:-}" ] || echo "$OUT"
      awk -v l="$latency" -v i="$interval" -v c="$conns" -v rate="$(field per_s)" -v cpu="$(field cpu_us)" -v p50="$(field p50_us)" -v p99="$(field p99_us)" \
        -v n="$((${after%.*} - ${before%.*}))" -v spent="$spent" -v seconds="$seconds" -v secs="$((SECS + WARM))" 'BEGIN {
        printf "| %s ms | %s | %s | %.0f | %.1f | %.2f | %.1f | %.1f | %.1f |\n", l, i, c, rate, cpu, n / (rate * secs) * 1000, (spent - seconds) / n * 1000, p50 / 1000, p99 / 1000 }'
    done
    stop_server
  done
  kill $PROXY; wait $PROXY 2>/dev/null; PROXY=
done
