#!/usr/bin/env bash
# The official clients against the binary, which the tests start, kill and start again themselves.
. "$(dirname "$0")/../lib.sh"

need_npm || { skip "official clients"; finish clients; }
workspace
run_vitest "$ROOT/tests/clients" "$WORK/clients.json"
read -r p f <<<"$VITEST"
PASSED=$((PASSED + p)) FAILED=$((FAILED + f))
finish clients
