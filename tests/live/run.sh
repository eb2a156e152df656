#!/usr/bin/env bash
# The live page at `/` in a real browser, with load on the server. Screenshots go to $LIVE_SHOTS, else into the cache folder.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../pg.sh"

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
trap 'stop_server KILL; kill ${SHAPES_PID:-} ${NODES_PID:-} 2>/dev/null; wait ${NODES_PID:-} 2>/dev/null; rm -rf "$WORK" "$here"' EXIT
# Three nodes, of which one is killed.
"$THALWEG_BIN" dev --nodes 3 --listen 127.0.0.1:0 --data "$WORK/nodes" --ready-file "$WORK/nodes-ready" >"$WORK/nodes.log" 2>&1 &
NODES_PID=$!
for _ in $(seq 600); do [ -s "$WORK/nodes-ready" ] && break; sleep 0.1; done
NODES=$(sed 's#^#http://#' "$WORK/nodes-ready" | xargs)
# A second server, with a database, for its shapes.
SHAPES_PID= SHAPES=
if need_pg 15 && pg_start 15; then
  as_pg "$(pg_bin 15)/psql" -q "$PG_URL" -c "CREATE TABLE items (id int PRIMARY KEY, title text)" -c "INSERT INTO items SELECT n, 'item ' || n FROM generate_series(1, 3) n"
  "$THALWEG_BIN" dev --listen 127.0.0.1:0 --data "$WORK/shapes" --ready-file "$WORK/shapes-ready" --database-url "$PG_URL" >/dev/null 2>"$WORK/shapes.log" &
  SHAPES_PID=$!
  for _ in $(seq 600); do [ -s "$WORK/shapes-ready" ] && SHAPES=http://$(cat "$WORK/shapes-ready") && [ "$(curl -s -o /dev/null -w '%{http_code}' "$SHAPES/v1/health")" = 200 ] && break; sleep 0.05; done
else
  skip "the live page of shapes (needs Postgres)"
fi
CHROMIUM=$(command -v chromium) HOME=$WORK timeout $((300 + ${LIVE_SECONDS:-0})) node "$here/live.mjs" "$BASE" "$SERVER_PID" "$SHAPES" "$NODES" "$WORK/nodes" >"$WORK/live.out" 2>&1 || fail "the browser test ends well: $(grep -v '^ok\|^FAILED' "$WORK/live.out" | tail -5)"
while IFS= read -r line; do
  case $line in "ok "*) pass "${line#ok }" ;; "FAILED "*) fail "${line#FAILED }" ;; esac
done <"$WORK/live.out"
[ "$PASSED" -ge 47 ] || fail "all checks ran ($PASSED)"
echo "screenshots: $LIVE_SHOTS"
finish live
