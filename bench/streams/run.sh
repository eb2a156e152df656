#!/usr/bin/env bash
# Side by side with the reference server, in one sitting: rounds are interleaved, tables hold medians.
#   CASES="append reactors create read replay crowd mixed fanout memory" ROUNDS=5 SECS=3 run.sh
# The servers take turns, in another order each round; every case starts on an empty folder. `bench/README.md` tells what the
# figures mean. RESULTS names a file whose chapter "Streams, side by side" is replaced, such as bench/RESULTS.md.
. "$(dirname "$0")/lib.sh"
CASES=${CASES:-append reactors create read replay crowd mixed fanout memory}
ROUNDS=${ROUNDS:-5} SECS=${SECS:-3} WARM=${WARM:-1}
MODES=${MODES:-durable buffered} COUNTS=${COUNTS:-1 1000 10000} CONNS=${CONNS:-64 256} PLAIN=${PLAIN:-plain producers}
SUBS=${SUBS:-10 100 500 2000} EVENTS=${EVENTS:-50} IDLE=${IDLE:-10000} CREATES=${CREATES:-10000} PEERS=${PEERS:-peer}
CROWDS=${CROWDS:-1 8 64 512}
RATE=${RATE:-2000} REPLAY_RATE=${REPLAY_RATE:-100} RESULTS=${RESULTS:-}
need curl; build
for peer in $PEERS; do
  case $peer in peer) need_peer || exit 1 ;; node) need_node_peer || exit 1 ;; earlier) [ -x "${EARLIER:-}" ] || { echo "EARLIER names no program"; exit 1; } ;; *) echo "PEERS has $peer: only peer, node and earlier are known"; exit 1 ;; esac
done
mkdir -p "$SCRATCH"; WORK=$(mktemp -d "$SCRATCH/run-XXXXXX")
trap 'stop_server KILL; rm -rf "$WORK"' EXIT
RAW=$WORK/raw # lines: group|round|case|column|metric|value
HEADER=$(machine)
ROUND=0

note() { echo "$1|$ROUND|$2|$3|$4|$5" >>"$RAW"; }
# target GROUP CASE WHAT: `metric<=x` or `metric>=x` of the first column by the second; `max:` of the largest by the smallest
# column, `abs:` of the first column itself.
target() { [ "$ROUND" = 1 ] && echo "$1|0|$2|target|target|$3" >>"$RAW"; return 0; }
# record GROUP CASE COLUMN: output of the load generator.
record() {
  local name key
  for name in per_s:ops cpu_us:cpu p50_us:p50 p99_us:p99 bytes_each:bytes mb_per_s:mb; do
    key=${name%:*}; [ -n "$(field "$key")" ] && note "$1" "$2" "$3" "${name#*:}" "$(field "$key")"
  done
  note "$1" "$2" "$3" bad "$(($(field bad) + $(field missing) + $(field wrong) + $(field dup) + 0))"
  printf '  %-62s %-16s %s\n' "$2" "$3" "$(sed -E 's/ p90_us.*//' <<<"$OUT" | cut -d' ' -f2-)"
}
# order WHO...: the same ones, beginning with another one each round.
order() { local shift=$((ROUND % $#)); local all=("$@"); echo "${all[@]:$shift}" "${all[@]:0:$shift}"; }
# begin WHO [flags...]: an empty server.
begin() { rm -rf "$WORK/data"; serve "$1" "$WORK/data" --max-connections 20000 "${@:2}"; }
end() { stop_server KILL; rm -rf "$WORK/data" "$WORK/data.log"; }
thousands() { sed -E 's/([0-9])([0-9]{3})$/\1,\2/' <<<"$1"; }
columns() { for who in thalweg $PEERS; do echo "$who:$1"; done; }

append_case() {
  local mode n c p case who
  for mode in $MODES; do for n in $COUNTS; do
    # The floor is one program for any number of streams; it is measured beside the single one.
    for who in $(order $(columns "$mode") $([ "$n" = 1 ] && { [ "$mode" = durable ] && echo floor:sync || echo floor:none; })); do
      begin "$who" || return
      [[ $who == floor* ]] || load --connections 64 create --streams "$n" || { end; continue; }
      for c in $CONNS; do for p in $PLAIN; do
        case="$(thousands "$n") streams, $c connections, $p"; [ "$n" = 1 ] && case="1 stream, $c connections, $p"
        # The floor answers as if there were no producers.
        [[ $who == floor* && $p = producers ]] && continue
        load --connections "$c" append --streams "$n" --seconds "$SECS" --warm "$WARM" $([ "$p" = producers ] && echo --producers) || continue
        record "append, $mode" "$case" "${who%:*}"
        case $mode-$n in
          durable-1) target "append, $mode" "$case" "cpu<=0.75" ;; durable-*) target "append, $mode" "$case" "cpu<=0.5" ;;
          buffered-1) target "append, $mode" "$case" "cpu<=0.8" ;; *) target "append, $mode" "$case" "cpu<=0.6" ;;
        esac
      done; done
      end
    done
  done; done
}

reactors_case() {
  local c n
  for n in $(order 1 2 4); do
    begin thalweg:durable --reactors "$n" || return
    load --connections 64 create --streams 1000
    for c in $CONNS; do
      load --connections "$c" append --streams 1000 --seconds "$SECS" --warm "$WARM" || continue
      record "append by reactors" "1,000 streams, $c connections" "$n"
      target "append by reactors" "1,000 streams, $c connections" "max:cpu<=1.2"
    done
    end
  done
}

create_case() {
  local who case before group="creation"
  case="$(thousands "$CREATES") streams, 64 connections"
  for who in $(order $(columns durable)); do
    begin "$who" || return
    before=$(rss_kb)
    load --connections 64 create --streams "$CREATES" || { end; continue; }
    record "$group" "$case" "${who%:*}"
    sleep 2; note "$group" "$case" "${who%:*}" bytes "$((($(rss_kb) - before) * 1024 / CREATES))"
    target "$group" "$case" "ops>=10"
    end
  done
}

read_case() {
  local who c
  for who in $(order $(columns durable)); do
    begin "$who" || return
    for c in $CONNS; do
      load --connections "$c" read --size 1024 --seconds "$SECS" --warm "$WARM" || continue
      record "read" "1 KB, $c connections" "${who%:*}"; target "read" "1 KB, $c connections" "cpu<=0.25"
    done
    end
  done
}

# replay_of WHO NAME TARGETS loadgen-arguments...
replay_of() {
  local who=$1 name=$2 targets=$3 each; shift 3
  load --connections 8 replay --prefix replay- --seconds "$SECS" --warm 0.5 "$@" || return
  record replay "$name" "${who%:*}"
  for each in $targets; do target replay "$name" "$each"; done
}

replay_case() {
  local who evict=(--evict "$WORK/data" --evict-every 50)
  for who in $(order $(columns durable)); do
    # Settling begins ten seconds after the fill, when the fresh case is over.
    begin "$who" || return
    load --connections 1 --depth 16 fill --binary --streams 1 --prefix replay- --messages 2000 --size 1024
    replay_of "$who" "2,000 x 1 KB, just filled" "ops>=0.8 cpu<=1.25" --streams 1
    end
    begin "$who" --settle-after 1s || return
    load --connections 8 --depth 16 fill --binary --streams 8 --prefix replay- --messages 2000 --size 1024
    settled "$who"
    replay_of "$who" "2,000 x 1 KB, settled" "ops>=1 cpu<=1" --streams 1
    replay_of "$who" "2,000 x 1 KB, settled, 8 streams, not in the page cache" "" --streams 8 "${evict[@]}"
    end
    begin "$who" --settle-after 1s || return
    load --connections 4 --depth 64 weave --streams 4 --prefix replay- --messages 2000 --size 1024 --others 10000 --between 10
    replay_of "$who" "2,000 x 1 KB, interleaved with 10,000 others, just filled" "" --streams 4
    settled "$who"
    # Once with every byte compared, and not counted.
    load --connections 4 replay --prefix replay- --streams 4 --verify --seconds 0.5 --warm 0 && [ "$(field wrong)" = 0 ] || echo "  $who: the replay is WRONG: $OUT"
    replay_of "$who" "2,000 x 1 KB, interleaved with 10,000 others, settled" "ops>=0.9 cpu<=1.11" --streams 4
    end
  done
}

# Each connection replays streams of its own, 512 of 2 MiB: is throughput flat, and memory bounded? RSS is the largest since the server began.
crowd_case() {
  local who n
  for who in $(order $(columns durable)); do
    begin "$who" --settle-after 1s || return
    load --connections 8 --depth 16 fill --binary --streams 512 --prefix replay- --messages 512 --size 4096
    settled "$who"
    for n in $CROWDS; do
      load --connections "$n" replay --prefix replay- --streams 512 --seconds "$SECS" --warm "$WARM" || continue
      record "replay" "512 streams of 2 MiB, $n connections" "${who%:*}"
      note memory "replay of 512 streams of 2 MiB, $n connections" "${who%:*}" bytes "$(awk '/VmHWM/ {print $2 * 1024}' "/proc/$SERVER_PID/status")"
    done
    end
  done
}

mixed_case() {
  local who case rate group="append beside replays"
  for who in $(order $(columns durable)); do
    begin "$who" --settle-after 1s || return
    load --connections 64 create --streams 1000
    load --connections 8 --depth 16 fill --binary --streams 64 --prefix replay- --messages 2000 --size 1024
    settled "$who"; sleep 3
    for rate in "$REPLAY_RATE" ""; do
      case="${who%:*}, $(thousands "$RATE") appends/s, 8 clients replay ${rate:+$rate times/s}"; [ -n "$rate" ] || case+="without a pause"
      load --connections 64 append --streams 1000 --rate "$RATE" --seconds "$SECS" --warm "$WARM" && record "$group" "$case" alone
      load --connections 64 mixed --streams 1000 --rate "$RATE" --seconds "$SECS" --warm "$WARM" --replayers 8 --replay-streams 64 \
        ${rate:+--replay-rate "$rate"} --evict "$WORK/data" && record "$group" "$case" "with replays"
      [[ $who == thalweg* ]] && target "$group" "$case" "p99<=3"
    done
    end
  done
}

fanout_case() {
  local who s
  for who in $(order $(columns durable)); do
    begin "$who" || return
    for s in $SUBS; do
      load fanout --readers "$s" --stream "fan$s" --rate "$EVENTS" --seconds "$SECS" --warm "$WARM" || continue
      record "SSE, $EVENTS events/s" "$(thousands "$s") readers" "${who%:*}"
      for t in "cpu<=0.6" "p50<=0.8" "p99<=1"; do target "SSE, $EVENTS events/s" "$(thousands "$s") readers" "$t"; done
    done
    end
  done
}

memory_case() {
  local who kind what held most=$(($(ulimit -n) - 2500)); local n=$((IDLE < most ? IDLE : most))
  for kind in keep-alive sse; do
    what="idle $kind connection, $(thousands $n) beyond the first 1,000"
    for who in $(order $(columns durable)); do
      begin "$who" --sse-lifetime 10min || return
      # The first ones' cost is buffers and code, not connections.
      "$LOADGEN" --server "$ADDRESS" --connections 1000 idle --kind $kind --settle 0.5 --hold 600 >"$WORK/held" 2>&1 &
      held=$!
      until [ -s "$WORK/held" ]; do kill -0 $held 2>/dev/null || break; sleep 0.1; done
      # Long enough for an allocator that gives memory back in its own time.
      load --connections "$n" idle --kind $kind --settle 12 && record "memory" "$what" "${who%:*}"
      target memory "$what" "abs:bytes<=$([ $kind = sse ] && echo 600 || echo 400)"
      kill $held 2>/dev/null; wait $held 2>/dev/null
      end
    done
  done
}

for ROUND in $(seq "$ROUNDS"); do
  echo "== round $ROUND of $ROUNDS (load $(cut -d' ' -f1 /proc/loadavg))"
  for name in $CASES; do "${name}_case"; done
done

{
  echo "## Streams, side by side"
  echo
  echo "$HEADER. Medians of $ROUNDS interleaved rounds of $SECS s; the client is on the same cores. \`peer\` is the crate"
  echo "durable-streams 0.1.5 (durable: \`wal\`, buffered: \`memory\`)$([[ $PEERS == *node* ]] && echo ', `node` the npm package @durable-streams/server 0.3.7 (durable: files)'). A cell is operations per second (server CPU µs per"
  echo "operation; p50 / p99 ms). A ratio is that of the medians, in brackets the rounds' own from lowest to highest."
  awk -f "$BENCH/table.awk" "$RAW"
} >"$WORK/tables"
cat "$WORK/tables"
if [ -n "$RESULTS" ]; then
  { [ -f "$RESULTS" ] && awk '/^## Streams, side by side/ {skip = 1; next} /^## / {skip = 0} !skip' "$RESULTS" || printf '# Results\n\n'; cat "$WORK/tables"; } >"$WORK/results"
  cp "$WORK/results" "$RESULTS"
fi
