# Shared parts of the black-box steps. Source it: . "$(dirname "$0")/../lib.sh"
#
# Every step prints `STEP name: P passed, F failed, S skipped` as its last line and exits non-zero if F > 0.

set -u
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${THALWEG_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/thalweg}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$CACHE/target}
# The binary under test. Another server for work on the tests: THALWEG_BIN=... THALWEG_KIND=peer
THALWEG_BIN=${THALWEG_BIN:-$CARGO_TARGET_DIR/release/thalweg}
THALWEG_KIND=${THALWEG_KIND:-thalweg}
export THALWEG_BIN THALWEG_KIND
mkdir -p "$CACHE"

# ---- counting

PASSED=0 FAILED=0 SKIPPED=0

pass() { PASSED=$((PASSED + 1)); echo "ok      $1"; }
fail() { FAILED=$((FAILED + 1)); echo "FAILED  $1"; }
# With REQUIRE_ALL=1 nothing may be missing.
skip() {
  if [ "${REQUIRE_ALL:-0}" = 1 ]; then fail "$1 (missing, and REQUIRE_ALL=1)"; else SKIPPED=$((SKIPPED + 1)); echo "skipped $1"; fi
}
# check "claim" command...: the claim holds if the command succeeds.
check() { local claim=$1; shift; if "$@"; then pass "$claim"; else fail "$claim"; fi; }
finish() { echo "STEP $1: $PASSED passed, $FAILED failed, $SKIPPED skipped"; [ "$FAILED" = 0 ]; exit; }

# ---- the server

SERVER_PID= BASE= WORK=
workspace() { WORK=$(mktemp -d "${TMPDIR:-/tmp}/thalweg-test-XXXXXX"); trap 'stop_server KILL; rm -rf "$WORK"' EXIT; }

# start_server [flags...]: at LISTEN, or on a free port, with its data in $WORK/data; sets SERVER_PID and BASE.
start_server() {
  rm -f "$WORK/ready"
  if [ "$THALWEG_KIND" = peer ]; then
    local port; port=$(node -e 'const s=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})')
    "$THALWEG_BIN" --host 127.0.0.1 --port "$port" --data-dir "$WORK/data" --long-poll-timeout-ms 500 >>"$WORK/server.log" 2>&1 &
    SERVER_PID=$! BASE=http://127.0.0.1:$port
    for _ in $(seq 100); do curl -fs "$BASE/health" >/dev/null && return 0; sleep 0.05; done
  else
    "$THALWEG_BIN" serve --listen "${LISTEN:-127.0.0.1:0}" --data "$WORK/data" --ready-file "$WORK/ready" "$@" >"$WORK/server.out" 2>>"$WORK/server.log" &
    SERVER_PID=$!
    for _ in $(seq 1200); do
      [ -s "$WORK/ready" ] && { BASE=http://$(cat "$WORK/ready"); return 0; }
      kill -0 "$SERVER_PID" 2>/dev/null || break
      sleep 0.05
    done
  fi
  echo "the server does not start:"; tail -5 "$WORK/server.log"; SERVER_PID=; return 1
}

# stop_server [SIGNAL=TERM]: its exit code.
stop_server() {
  [ -n "$SERVER_PID" ] || return 0
  kill "-${1:-TERM}" "$SERVER_PID" 2>/dev/null
  local code=0; wait "$SERVER_PID" 2>/dev/null || code=$?
  SERVER_PID=
  return $code
}

# ---- node

node_is_new_enough() { command -v node >/dev/null && [ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ]; }

# Puts node >= 20 and npm on the PATH, if there is any way; Debian 12 has an older one, which can still fetch a newer.
need_node() {
  node_is_new_enough && command -v npm >/dev/null && return 0
  [ -x "$CACHE/node/node_modules/.bin/node" ] || { command -v npm >/dev/null && npm install --prefix "$CACHE/node" --no-audit --no-fund node@22 >"$CACHE/node.log" 2>&1; }
  PATH=$CACHE/node/node_modules/.bin:$PATH
  node_is_new_enough && command -v npm >/dev/null
}

# Installs tests/npm once per lock file, outside the repository; sets NPM to the folder that holds node_modules.
need_npm() {
  need_node || { echo "node >= 20 with npm is not here"; return 1; }
  NPM=$CACHE/npm-$(cat "$ROOT"/tests/npm/package*.json | cksum | cut -d' ' -f1)
  [ -e "$NPM/complete" ] && return 0
  mkdir -p "$NPM" && cp "$ROOT"/tests/npm/package*.json "$NPM"/ || return 1
  for _ in 1 2 3; do
    (cd "$NPM" && npm ci --no-audit --no-fund) >"$NPM/install.log" 2>&1 && { touch "$NPM/complete"; return 0; }
    sleep 3
  done
  echo "npm cannot install the suite and the clients:"; tail -5 "$NPM/install.log"; return 1
}

# run_vitest FOLDER OUT: runs the tests of a folder of ours beside node_modules; prints failures, and `P F` in VITEST.
run_vitest() {
  local folder=$1 out=$2 here; here=$NPM/$(basename "$folder")-$$
  rm -rf "$here"; mkdir -p "$here"; cp "$folder"/*.ts "$folder"/*.mjs "$here"/
  (cd "$here" && "$NPM/node_modules/.bin/vitest" run --reporter=json --outputFile="$out") >"$out.log" 2>&1 </dev/null
  rm -rf "$here"
  VITEST=$(node -e '
    const fs = require("fs"), out = process.argv[1]
    const report = fs.existsSync(out) ? JSON.parse(fs.readFileSync(out)) : { testResults: [] }
    let passed = 0, failed = 0
    for (const file of report.testResults) {
      if (file.assertionResults.length === 0) { failed++; console.error("FAILED  " + file.name + ": " + file.message) }
      for (const test of file.assertionResults) {
        if (test.status === "passed") passed++
        if (test.status === "failed") { failed++; console.error("FAILED  " + test.fullName + ": " + (test.failureMessages[0] ?? "").split("\n")[0]) }
      }
    }
    console.log(passed, failed)' "$out")
  [ -n "$VITEST" ] && [ "$VITEST" != "0 0" ] || { tail -20 "$out.log"; VITEST="0 1"; }
}
