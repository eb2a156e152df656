#!/usr/bin/env bash
# The published conformance suite while ten times as much as --cache-bytes is in the bucket only, and all of that read back after
# it. CACHE_MIB (8): the cache, 8 at least. COLD_MB (ten times the cache, and some): what is written before.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../bucket/buckets.sh"
CACHE_MIB=${CACHE_MIB:-8} COLD_MB=${COLD_MB:-$((CACHE_MIB * 12))} EXPECTED=338

need_npm || { skip "conformance suite over cold data"; finish cold; }
workspace
trap 'stop_server KILL; stop_stores; rm -rf "$WORK"' EXIT
if ! need_versitygw >"$WORK/install.log" 2>&1; then tail -3 "$WORK/install.log"; skip "conformance suite over cold data (needs go)"; finish cold; fi
start_versitygw || { tail -3 "$WORK/versitygw.log"; fail "versitygw starts"; finish cold; }

model() { local command=$1; shift; node "$ROOT/tests/store/model.mjs" "$command" "$WORK/model.json" "$BASE" "$@"; }
metric() { curl -s "$BASE/metrics" | awk -v name="thalweg_$1" '$1 == name { printf "%.0f\n", $2 }'; }
within() { local until=$((SECONDS + $1)); shift; until "$@"; do [ $SECONDS -lt $until ] || return 1; sleep 0.2; done; }
CACHE_BYTES=$((CACHE_MIB << 20))
is_cold() { [ "$(metric cold_bytes)" -ge $((10 * CACHE_BYTES)) ]; }
is_within_cache() { [ "$(metric local_object_bytes)" -le $CACHE_BYTES ]; }

start_server --long-poll-timeout 500ms --webhook-targets local --allow-origin https://example.com --store "$LOCATION" --cache-bytes "${CACHE_MIB}MiB" \
  --settle-after 300ms --settle-bytes 4MiB --journal-segment-bytes 16MiB --window-bytes 4MiB --chunk-cache-bytes 1MiB --offload-every 300ms ||
  { fail "the server starts with a cache of $CACHE_MIB MiB"; finish cold; }
check "$COLD_MB MB are written" model append --streams 8 --megabytes "$(python3 -c "print($COLD_MB / 8)")"
check "ten times the cache becomes cold" within 300 is_cold
echo "$(metric cold_bytes) bytes are cold, $(metric local_object_bytes) of objects are on the disk, the cache has $CACHE_BYTES"
export DS_BASE_URL=$BASE DS_SUBSCRIPTIONS=1
run_vitest "$ROOT/tests/conformance" "$WORK/suite.json"
read -r p f <<<"$VITEST"
echo "over cold data: $p of $EXPECTED passed, $f failed"
PASSED=$((PASSED + p)) FAILED=$((FAILED + f))
[ "$f" = 0 ] && [ "$p" != "$EXPECTED" ] && fail "the suite has $EXPECTED tests"
check "it is still cold" is_cold
before=$(metric cold_reads_total)
check "all of it is read back as it was written, at its offsets" model verify
check "from the bucket" test "$(metric cold_reads_total)" -gt "$before"
check "the disk keeps to --cache-bytes" within 30 is_within_cache
check "the server stops in order" stop_server
finish cold
