#!/usr/bin/env bash
# The published conformance suite against the binary: RUNS times in a row (3), one server, one data folder; then once with tokens on,
# once over TLS, and once with hardly anything in memory.
. "$(dirname "$0")/../lib.sh"
RUNS=${RUNS:-3} EXPECTED=338

need_npm || { skip "conformance suite"; finish conformance; }
workspace
# once NAME: one run of the suite against BASE.
once() {
  local p f
  export DS_BASE_URL=$BASE DS_SUBSCRIPTIONS=1
  run_vitest "$ROOT/tests/conformance" "$WORK/$1.json"
  read -r p f <<<"$VITEST"
  echo "$1: $p of $EXPECTED passed, $f failed"
  PASSED=$((PASSED + p)) FAILED=$((FAILED + f))
  [ "$f" = 0 ] && [ "$p" != "$EXPECTED" ] && fail "$1 has $EXPECTED tests"
}

# One test asks first, as a page of https://example.com would.
PAGES=https://example.com
start_server --long-poll-timeout 500ms --webhook-targets local --allow-origin $PAGES || { fail "the server starts"; finish conformance; }
for run in $(seq "$RUNS"); do once "run $run"; done
[ "$THALWEG_KIND" = peer ] && finish conformance
check "the server stops gracefully after the suite" stop_server

if "$THALWEG_BIN" token new --name suite --admin '*' >"$WORK/tokens.toml" 2>"$WORK/token" &&
  start_server --long-poll-timeout 500ms --webhook-targets local --tokens "$WORK/tokens.toml"; then
  check "without a token nothing is read" test "$(curl -s -o /dev/null -w '%{http_code}' "$BASE/v1/stream/a")" = 401
  DS_TOKEN=$(tail -1 "$WORK/token"); export DS_TOKEN
  once "with tokens"
  unset DS_TOKEN
  stop_server
else
  fail "the server starts with tokens"
fi

certificate() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=IP:127.0.0.1 -keyout "$WORK/key.pem" -out "$WORK/cert.pem" >/dev/null 2>&1
}
if ! command -v openssl >/dev/null; then
  skip "conformance suite over TLS (needs openssl)"
elif certificate && start_server --long-poll-timeout 500ms --webhook-targets local --allow-origin $PAGES --tls-cert "$WORK/cert.pem" --tls-key "$WORK/key.pem"; then
  BASE=${BASE/http:/https:}
  check "curl trusts the certificate" curl -fsS --cacert "$WORK/cert.pem" "$BASE/health"
  export NODE_EXTRA_CA_CERTS=$WORK/cert.pem
  once "over TLS"
  unset NODE_EXTRA_CA_CERTS
  stop_server
else
  fail "the server starts with a certificate"
fi
if start_server --long-poll-timeout 500ms --webhook-targets local --allow-origin $PAGES --window-bytes 4KiB --chunk-cache-bytes 4KiB; then
  once "with a tiny window"
  stop_server
else
  fail "the server starts with a tiny window"
fi

# Every stream in a bucket: the protocol's rules hold as they do on a disk.
. "$ROOT/tests/bucket/buckets.sh"
trap 'stop_server KILL; stop_stores; rm -rf "$WORK"' EXIT
is_joined() { curl -s "$BASE/metrics" | grep -q '^thalweg_replicated_units 1'; }
if ! need_versitygw >"$WORK/install.log" 2>&1; then
  tail -3 "$WORK/install.log"; skip "conformance suite with replicated streams (needs go)"
elif rm -rf "$WORK/data" && start_versitygw &&
  start_server --long-poll-timeout 500ms --webhook-targets local --allow-origin $PAGES --store "$LOCATION" --durability replicated --commit-interval 1ms; then
  for _ in $(seq 200); do is_joined && break; sleep 0.1; done
  once "replicated"
  stop_server
else
  fail "the server starts with a bucket"
fi

# Most of the data in the bucket only.
while read -r line; do
  case $line in
    ok* | FAILED* | skipped*) ;;
    STEP*) read -r p f k < <(sed -E 's/.*: ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped.*/\1 \2 \3/' <<<"$line"); PASSED=$((PASSED + p)) FAILED=$((FAILED + f)) SKIPPED=$((SKIPPED + k)) ;;
  esac
  echo "$line"
done < <("$ROOT/tests/conformance/cold.sh")
finish conformance
