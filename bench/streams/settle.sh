#!/usr/bin/env bash
# Ten minutes of appends over 10,000 streams, with settling on and off; then half of the streams are deleted.
#   SECS=600 RATE=20000 STREAMS=10000 settle.sh
. "$(dirname "$0")/lib.sh"
SECS=${SECS:-600} RATE=${RATE:-20000} STREAMS=${STREAMS:-10000} PURGE=${PURGE:-10s} MODES=${MODES:-on off}
build; mkdir -p "$SCRATCH"; WORK=$(mktemp -d "$SCRATCH/settle-XXXXXX")
trap 'stop_server KILL; rm -rf "$WORK"' EXIT
# Size of content: the journal's segments are allocated in advance and reused.
used() { du -sm --exclude=journal --exclude=reserve "$1" | cut -f1; }
machine
P99=
for mode in $MODES; do
  echo "== settle $mode: $RATE appends/s of 256 B over $STREAMS streams for $SECS s"
  # Off: nothing may be refused for want of settling.
  serve thalweg:durable "$WORK/$mode" --settle "$mode" --purge-after "$PURGE" $([ "$mode" = off ] && echo --journal-bound-bytes 64GiB) || exit 1
  "$LOADGEN" --server "$ADDRESS" --connections 16 --depth 32 create --streams "$STREAMS" || exit 1
  "$LOADGEN" --server "$ADDRESS" --connections 32 --depth 64 append --streams "$STREAMS" --rate "$RATE" --warm 0 --seconds "$SECS" --every 10 >"$WORK/$mode.latency" &
  load=$!
  while kill -0 $load 2>/dev/null; do
    for _ in $(seq 10); do kill -0 $load 2>/dev/null && sleep 1; done
    tail -1 "$WORK/$mode.latency"
    echo "  lag_bytes=$(metric settle_lag_bytes) lag_s=$(metric settle_lag_seconds) journal=$(metric journal_held_bytes) runs_max=$(metric runs_max) write_amp=$(metric write_amplification) space_amp=$(metric space_amplification) objects=$(metric objects) rss_mb=$(($(rss_kb) / 1024)) objects_mb=$(used "$WORK/$mode")"
  done
  wait $load || { echo "the load failed"; tail -3 "$WORK/$mode.log"; exit 1; }
  last=$(tail -1 "$WORK/$mode.latency")
  P99+="$mode $(sed -E 's/.* p99_us=([0-9]+).*/\1/' <<<"$last")"$'\n'
  if [ "$mode" = on ]; then
    sleep 15; before=$(used "$WORK/$mode")
    "$LOADGEN" --server "$ADDRESS" --connections 16 --depth 32 delete --streams "$STREAMS" --step 2
    began=$SECONDS
    until [ "$(used "$WORK/$mode")" -le $((before * 6 / 10)) ] || [ $((SECONDS - began)) -gt 900 ]; do sleep 1; done
    echo "half of the streams deleted: $before MB before, $(used "$WORK/$mode") MB after $((SECONDS - began)) s (purge after $PURGE)"
  fi
  stop_server KILL; rm -rf "${WORK:?}/$mode"
done
echo "append p99 (µs): "; printf '%s' "$P99"
awk '$1 == "on" {on = $2} $1 == "off" {off = $2} END {if (on && off) printf "p99 with settling is %.2f times that without (goal: at most 2)\n", on / off}' <<<"$P99"
