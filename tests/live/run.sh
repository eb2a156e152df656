#!/usr/bin/env bash
# The live page at `/` in a real browser, with load on the server. Screenshots go to $LIVE_SHOTS, else into the cache folder.
. "$(dirname "$0")/../lib.sh"

command -v chromium >/dev/null || { skip "live page in a browser (needs chromium)"; finish live; }
need_npm || { skip "live page in a browser"; finish live; }
workspace
start_server --long-poll-timeout 500ms || { fail "the server starts"; finish live; }
LIVE_SHOTS=${LIVE_SHOTS:-$CACHE/live}; export LIVE_SHOTS; mkdir -p "$LIVE_SHOTS"

text() { curl -fsS -D - "$@" "$BASE/" | tr -d '\r'; }
check "a program gets text" grep -q "^content-type: text/plain" <(text)
check "a browser gets the page" grep -q "^content-type: text/html" <(text -H 'accept: text/html')
check "HEAD tells the same without a body" grep -q "^content-type: text/html" <(text -I -H 'accept: text/html')

# Beside node_modules, so that the import is found.
here=$NPM/live-$$; mkdir -p "$here"; cp "$ROOT"/tests/live/*.mjs "$here"/
trap 'stop_server KILL; rm -rf "$WORK" "$here"' EXIT
CHROMIUM=$(command -v chromium) HOME=$WORK timeout 180 node "$here/live.mjs" "$BASE" "$SERVER_PID" >"$WORK/live.out" 2>&1 || fail "the browser test ends well: $(grep -v '^ok\|^FAILED' "$WORK/live.out" | tail -5)"
while IFS= read -r line; do
  case $line in "ok "*) pass "${line#ok }" ;; "FAILED "*) fail "${line#FAILED }" ;; esac
done <"$WORK/live.out"
[ "$PASSED" -ge 12 ] || fail "all checks ran ($PASSED)"
echo "screenshots: $LIVE_SHOTS"
finish live
