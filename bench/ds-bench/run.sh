#!/usr/bin/env bash
# Side by side with the reference server under the load tool of the protocol's authors (github.com/electric-sql/ds-bench), which is not
# part of this repository: DS_BENCH names its binary, or a checkout of it that is built here.
#   DS_BENCH=/path/to/ds-bench CASES="catch-up mixed fan-out settling multi-stream" ROUNDS=3 SECS=5 run.sh
# The servers take turns, in another order each round; each begins on an empty folder. The table has the median of the rounds, a cell of
# server CPU the whole life of the server, the load's own preparations included. `bench/README.md` describes the cases.
. "$(dirname "$0")/../streams/lib.sh"
CASES=${CASES:-catch-up mixed fan-out settling multi-stream}
ROUNDS=${ROUNDS:-3} SECS=${SECS:-5} PEERS=${PEERS:-peer}
CLIENTS=${CLIENTS:-64 512} SUBSCRIBERS=${SUBSCRIBERS:-100 500} STREAMS=${STREAMS:-100 1000} UNSETTLED=${UNSETTLED:-5000}
need curl; need jq
[ -n "${DS_BENCH:-}" ] || { echo "DS_BENCH names neither the tool's binary nor a checkout of github.com/electric-sql/ds-bench"; exit 1; }
if [ -d "$DS_BENCH" ]; then
  [ -f "$DS_BENCH/ds-bench/Cargo.toml" ] && DS_BENCH=$DS_BENCH/ds-bench
  # From another folder, so that the compiler which that checkout pins need not be here.
  (cd "$ROOT" && cargo build --release --manifest-path "$DS_BENCH/Cargo.toml" --target-dir "$CACHE/ds-bench") || exit 1
  DS_BENCH=$CACHE/ds-bench/release/ds-bench
fi
build
for peer in $PEERS; do
  case $peer in peer) need_peer || exit 1 ;; earlier) [ -x "${EARLIER:-}" ] || { echo "EARLIER names no program"; exit 1; } ;; *) echo "PEERS has $peer: only peer and earlier are known"; exit 1 ;; esac
done
mkdir -p "$SCRATCH"; WORK=$(mktemp -d "$SCRATCH/ds-bench-XXXXXX")
trap 'stop_server KILL; rm -rf "$WORK"' EXIT
RAW=$WORK/raw # lines: case|metric|column|value
HEADER=$(machine)

# tool CASE arguments...: the tool's report is in OUT.
tool() { OUT=$("$DS_BENCH" "$1" --target "$BASE" --api-style durable "${@:2}" 2>"$WORK/tool.err") || { tail -2 "$WORK/tool.err"; return 1; }; }
# record CASE METRIC=JQ...: of OUT, and what the server has cost so far.
record() {
  local name=$1 each value line=; shift
  for each in "$@"; do
    value=$(jq -r "${each#*=} | . * 100 | round / 100" <<<"$OUT"); line+=" ${each%%=*}=$value"
    echo "$name|${each%%=*}|$WHO|$value" >>"$RAW"
  done
  value=$(awk -v us="$(cpu_us)" 'BEGIN {printf "%.2f", us / 1e6}'); echo "$name|server CPU s|$WHO|$value" >>"$RAW"
  value=$(awk '/VmHWM/ {printf "%.0f", $2 / 1024}' "/proc/$SERVER_PID/status"); echo "$name|largest RSS MiB|$WHO|$value" >>"$RAW"
  printf '  %-34s %-8s%s\n' "$name" "$WHO" "$line"
}
begin() { rm -rf "$WORK/data"; serve "$WHO:durable" "$WORK/data" "$@"; }
end() { stop_server KILL; rm -rf "$WORK/data" "$WORK/data.log"; }
FANOUT=(p50_ms=.fan_out_latency_ms.p50_ms p99_ms=.fan_out_latency_ms.p99_ms max_ms=.fan_out_latency_ms.max_ms)

catch-up_case() {
  local n
  for n in $CLIENTS; do
    begin || return
    tool catch-up --clients "$n" --pre-events 20000 --event-bytes 256 &&
      record "catch-up, $n clients at once" "MB/s=.aggregate_mb_per_sec" p50_ms=.latency_ms.p50_ms max_ms=.latency_ms.max_ms "failed=.counts.other_err + .counts.backpressure"
    end
  done
}
mixed_case() {
  begin || return
  tool mixed --streams 20 --readers 20 --subscribers 100 --duration-secs "$SECS" &&
    record mixed "append p50_ms=.write_latency_ms.p50_ms" "fan-out p50_ms=.fan_out_latency_ms.p50_ms" "read p50_ms=.read_latency_ms.p50_ms" \
      "append p99_ms=.write_latency_ms.p99_ms" "fan-out p99_ms=.fan_out_latency_ms.p99_ms" "read p99_ms=.read_latency_ms.p99_ms" \
      "appends=.write_counts.ok" "reads=.read_counts.ok" "failed=.write_counts.other_err + .read_counts.other_err"
  end
}
fan-out_case() {
  local n
  for n in $SUBSCRIBERS; do
    begin || return
    tool fan-out --stream fan --subscribers "$n" --duration-secs "$SECS" && record "fan-out, $n readers" "${FANOUT[@]}"
    end
  done
}
# Right after a load of many streams, whose content is being settled; and beside it the same server at rest.
settling_case() {
  begin $([ "$WHO" = peer ] || echo --settle-after 3s) || return
  tool multi-stream --streams "$UNSETTLED" --duration-secs 3 || { end; return; }
  tool fan-out --stream during --subscribers 100 --duration-secs 12 && record "fan-out, 100 readers, after $UNSETTLED streams" "${FANOUT[@]}"
  settled "$WHO:durable"
  tool fan-out --stream rest --subscribers 100 --duration-secs 12 && record "the same at rest" "${FANOUT[@]}"
  end
}
multi-stream_case() {
  local n
  for n in $STREAMS; do
    begin || return
    tool multi-stream --streams "$n" --duration-secs "$SECS" --warmup-secs 1 &&
      record "multi-stream, $n streams" "appends/s=.aggregate_ops_per_sec" p50_ms=.latency_ms.p50_ms p99_ms=.latency_ms.p99_ms
    end
  done
}

for ROUND in $(seq "$ROUNDS"); do
  echo "== round $ROUND of $ROUNDS (load $(cut -d' ' -f1 /proc/loadavg))"
  ALL=(thalweg $PEERS); SHIFT=$((ROUND % ${#ALL[@]}))
  for name in $CASES; do for WHO in "${ALL[@]:$SHIFT}" "${ALL[@]:0:$SHIFT}"; do "${name}_case"; done; done
done

{
  echo "## Under the protocol authors' load tool"
  echo
  echo "$HEADER. ds-bench (its Rust client alone, on the same cores), medians of $ROUNDS interleaved rounds, in brackets the lowest and the"
  echo "highest. \`peer\` is the crate durable-streams 0.1.5."
  echo
  awk -F'|' -v who="thalweg $PEERS" '
    function median(key,   n, i, j, t, v) {
      n = split(all[key], v, " "); if (!n) return "-"
      for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
      return v[int((n + 1) / 2)] (n > 1 ? " (" v[1] "–" v[n] ")" : "")
    }
    { row = $1 "|" $2; if (!(row in seen)) { seen[row] = 1; rows[++count] = row } all[row "|" $3] = all[row "|" $3] " " $4 }
    END {
      n = split(who, column, " "); printf "| case | |"; for (i = 1; i <= n; i++) printf " %s |", column[i]; printf "\n|---|---|"; for (i = 1; i <= n; i++) printf "---|"; print ""
      for (r = 1; r <= count; r++) { split(rows[r], part, "|"); printf "| %s | %s |", part[1] == last ? "" : part[1], part[2]; last = part[1]; for (i = 1; i <= n; i++) printf " %s |", median(rows[r] "|" column[i]); print "" }
    }' "$RAW"
} | tee "${REPORT_FILE:-/dev/null}"
