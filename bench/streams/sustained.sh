#!/usr/bin/env bash
# Durable appends for minutes, so that settling and checkpoints count: the cost of an append over the whole time.
#   SECS=600 SLICE=60 RATE=15000 STREAMS=10000 sustained.sh
# The servers take turns in slices, each for SECS in all. A server's CPU time counts from the first slice to the end of its last
# background work, the others' slices included: deferred work is not free. RATE=0 is a closed loop.
. "$(dirname "$0")/lib.sh"
SECS=${SECS:-600} SLICE=${SLICE:-60} RATE=${RATE:-15000} STREAMS=${STREAMS:-10000} CONNECTIONS=${CONNECTIONS:-64}
SERVERS=${SERVERS:-thalweg:durable peer:durable}
build; [[ $SERVERS == *peer* ]] && { need_peer || exit 1; }
mkdir -p "$SCRATCH"; WORK=$(mktemp -d "$SCRATCH/sustained-XXXXXX")
declare -A PIDS ADDRESSES SPENT APPENDS P50 P99
trap 'for SERVER_PID in "${PIDS[@]}"; do stop_server KILL; done; rm -rf "$WORK"' EXIT
turn() { SERVER_PID=${PIDS[$1]} ADDRESS=${ADDRESSES[$1]} BASE=http://${ADDRESSES[$1]}; }
machine
for who in $SERVERS; do
  serve "$who" "$WORK/${who%:*}" || exit 1
  PIDS[$who]=$SERVER_PID ADDRESSES[$who]=$ADDRESS APPENDS[$who]=0
  load --connections 64 create --streams "$STREAMS" || exit 1
  SPENT[$who]=$(cpu_us)
done
for slice in $(seq $(((SECS + SLICE - 1) / SLICE))); do
  for who in $SERVERS; do
    turn "$who"
    load --connections "$CONNECTIONS" append --streams "$STREAMS" --warm 0 --seconds "$SLICE" $([ "$RATE" != 0 ] && echo --rate "$RATE") || exit 1
    APPENDS[$who]=$((APPENDS[$who] + $(field ops)))
    P50[$who]+="$(field p50_us)"$'\n' P99[$who]+="$(field p99_us)"$'\n'
    echo "slice $slice $who: $OUT"
    [[ $who == thalweg* ]] && echo "  lag_s=$(metric settle_lag_seconds) journal=$(metric journal_held_bytes) runs_max=$(metric runs_max) write_amp=$(metric write_amplification)"
  done
done
# Pending background work belongs to the appends.
for who in $SERVERS; do turn "$who"; settled "$who"; done
echo
echo "| server | appends | CPU per append, all included (µs) | p50 / p99 of the median slice (ms) | on disk (MB) |"
echo "|---|---|---|---|---|"
for who in $SERVERS; do
  turn "$who"
  echo "| $who | ${APPENDS[$who]} | $(awk -v a="${SPENT[$who]}" -v b="$(cpu_us)" -v n="${APPENDS[$who]}" 'BEGIN {printf "%.2f", (b - a) / n}') | $(printf '%s' "${P50[$who]}" | median | awk '{printf "%.2f", $1 / 1000}') / $(printf '%s' "${P99[$who]}" | median | awk '{printf "%.2f", $1 / 1000}') | $(du -sm "$WORK/${who%:*}" | cut -f1) |"
done
