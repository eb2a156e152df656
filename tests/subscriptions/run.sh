#!/usr/bin/env bash
# Subscriptions on the binary: webhooks and claims while the server is killed with SIGKILL, KILLS times (8).
. "$(dirname "$0")/../lib.sh"
KILLS=${KILLS:-8} SEED=${SEED:-$RANDOM}

command -v node >/dev/null || { skip "subscriptions under kill -9 (needs node)"; finish subscriptions; }
[ "$THALWEG_KIND" = peer ] && { skip "subscriptions under kill -9 (ours only)"; finish subscriptions; }
workspace
node "$ROOT/tests/subscriptions/crash.mjs" "$THALWEG_BIN" "$WORK" "$KILLS" "$SEED" | tee "$WORK/claims"
[ "${PIPESTATUS[0]}" = 0 ] || fail "the run ends by itself (SEED=$SEED KILLS=$KILLS)"
PASSED=$((PASSED + $(grep -c '^ok ' "$WORK/claims"))) FAILED=$((FAILED + $(grep -c '^FAILED ' "$WORK/claims")))
check "the data folder is sound after all this" "$THALWEG_BIN" check "$WORK/data"
[ "$FAILED" = 0 ] || tail -5 "$WORK/server.log"
finish subscriptions
