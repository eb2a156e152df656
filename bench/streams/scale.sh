#!/usr/bin/env bash
# Many streams under `ulimit -n 1024`: memory per idle stream, restart after kill -9 (cold and warm), all deleted or expired at once.
#   STREAMS="100000 1000000" scale.sh
. "$(dirname "$0")/lib.sh"
STREAMS=${STREAMS:-100000 1000000} BYTES=${BYTES:-200} LEAVE=${LEAVE:-delete}
build; mkdir -p "$SCRATCH"; WORK=$(mktemp -d "$SCRATCH/scale-XXXXXX")
trap 'stop_server KILL; rm -rf "$WORK"' EXIT
ulimit -n 1024
machine
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN {printf "%.2f", b - a}'; }
for n in $STREAMS; do
  echo "== $n streams, 40-byte names, JSON, 10 messages of $BYTES bytes, one producer each"
  serve thalweg:durable "$WORK/$n" --max-connections 900 --purge-after 10s || exit 1
  empty=$(rss_kb)
  ttl=0; [ "$LEAVE" = expire ] && ttl=$((n / 2000 + 120))
  filled=$(now)
  "$LOADGEN" --server "$ADDRESS" --connections 32 --depth 64 fill --streams "$n" --messages 10 --bytes "$BYTES" --ttl $ttl || exit 1
  sleep 15
  echo "memory: $(((($(rss_kb) - empty)) * 1024 / n)) B per idle stream (rss $(($(rss_kb) / 1024)) MB, empty $((empty / 1024)) MB), disk $(du -sm "$WORK/$n" | cut -f1) MB, open files $(ls "/proc/$SERVER_PID/fd" | wc -l)"
  for caches in warm cold; do
    stop_server KILL
    if [ $caches = cold ]; then
      sync
      { echo 3 >/proc/sys/vm/drop_caches; } 2>/dev/null || { echo "restart cold: skipped (needs root)"; caches=warm-again; }
    fi
    began=$(now); serve thalweg:durable "$WORK/$n" --max-connections 900 --purge-after 10s || exit 1
    echo "restart $caches after kill -9: $(since "$began") s; memory then $(((($(rss_kb) - empty)) * 1024 / n)) B per stream"
    "$LOADGEN" --server "$ADDRESS" verify --streams "$n" --sample 1000 --messages 10 || exit 1
  done
  echo "leaving ($LEAVE), with appends to another stream beside it:"
  "$LOADGEN" --server "$ADDRESS" --connections 1 create --streams 1 --prefix probe-
  seconds=$((n / 20000 + 20))
  [ "$LEAVE" = expire ] && seconds=$(awk -v f="$filled" -v t=$ttl -v b="$(now)" 'BEGIN {printf "%.0f", f + t - b + 60}')
  "$LOADGEN" --server "$ADDRESS" --connections 4 append --streams 1 --prefix probe- --rate 400 --warm 0 --seconds "$seconds" --every 5 &
  probe=$!
  sleep 5
  [ "$LEAVE" = delete ] && "$LOADGEN" --server "$ADDRESS" --connections 16 --depth 64 delete --streams "$n"
  wait $probe
  echo "streams left: $(metric streams), disk $(du -sm "$WORK/$n" | cut -f1) MB, rss $(($(rss_kb) / 1024)) MB"
  stop_server KILL; rm -rf "${WORK:?}/$n"
done
