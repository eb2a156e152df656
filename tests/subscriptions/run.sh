#!/usr/bin/env bash
# Subscriptions on the binary over restarts by SIGKILL: signatures, retries, claims; a few kills (KILLS, 2) at random moments under load.
# tests/crash covers many of these, together with everything else.
. "$(dirname "$0")/../lib.sh"
KILLS=${KILLS:-2} SEED=${SEED:-$RANDOM}

command -v node >/dev/null || { skip "subscriptions under kill -9 (needs node)"; finish subscriptions; }
[ "$THALWEG_KIND" = peer ] && { skip "subscriptions under kill -9 (ours only)"; finish subscriptions; }
workspace
node "$ROOT/tests/subscriptions/crash.mjs" "$THALWEG_BIN" "$WORK" "$KILLS" "$SEED" | tee "$WORK/claims"
[ "${PIPESTATUS[0]}" = 0 ] || fail "the run ends by itself (SEED=$SEED KILLS=$KILLS)"
PASSED=$((PASSED + $(grep -c '^ok ' "$WORK/claims"))) FAILED=$((FAILED + $(grep -c '^FAILED ' "$WORK/claims")))
check "the data folder is sound after all this" "$THALWEG_BIN" check "$WORK/data"
[ "$FAILED" = 0 ] || tail -5 "$WORK/server.log"
finish subscriptions
