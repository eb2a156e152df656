#!/usr/bin/env bash
# examples/shapes-react in a real browser: built with Vite, served by it, against Postgres through the binary. A screenshot goes to
# $EXAMPLE_SHOTS, else into the cache folder.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../pg.sh"

[ "$THALWEG_KIND" = peer ] && { skip "the example of shapes (ours only)"; finish example; }
command -v chromium >/dev/null || { skip "the example of shapes in a browser (needs chromium)"; finish example; }
need_npm || { skip "the example of shapes"; finish example; }
need_pg 15 || { skip "the example of shapes (needs Postgres)"; finish example; }

# Its packages, once for each package.json, outside the repository.
EXAMPLE=$ROOT/examples/shapes-react
SITE=$CACHE/example-$(cksum <"$EXAMPLE/package.json" | cut -d' ' -f1)
if [ ! -e "$SITE/complete" ]; then
  mkdir -p "$SITE" && cp "$EXAMPLE/package.json" "$SITE"/
  (cd "$SITE" && npm install --no-audit --no-fund --no-package-lock) >"$SITE/install.log" 2>&1 && touch "$SITE/complete" ||
    { tail -5 "$SITE/install.log"; skip "the example of shapes (npm cannot install it)"; finish example; }
fi
workspace
# A copy of the sources beside them, where imports are looked up.
HERE=$SITE/run-$$; mkdir -p "$HERE"; cp -r "$EXAMPLE"/. "$HERE"/
PAGE=$NPM/example-$$; mkdir -p "$PAGE"; cp "$ROOT"/tests/example/*.mjs "$PAGE"/
VITE_PID=
trap '[ -n "$VITE_PID" ] && kill "$VITE_PID" 2>/dev/null; stop_server KILL; rm -rf "$WORK" "$HERE" "$PAGE"; pg_cleanup' EXIT

pg_start 15 || { fail "Postgres starts"; finish example; }
export PSQL; PSQL=$(pg_bin 15)/psql
"$PSQL" -q -d "$PG_URL" -f "$EXAMPLE/schema.sql" || fail "the example's SQL is right"
export THALWEG_DATABASE_URL=$PG_URL THALWEG_SHAPE_SECRET=s3cret PG_URL
start_server --shape-long-poll-timeout 3s || { fail "the server starts"; finish example; }
export THALWEG_SERVER=$BASE NO_PROXY=127.0.0.1,localhost

check "it builds" bash -c "cd '$HERE' && npm run build >'$WORK/build.log' 2>&1 || { tail -5 '$WORK/build.log'; false; }"
PORT=$(node -e 'const s=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})')
(cd "$HERE" && exec node "$SITE/node_modules/vite/bin/vite.js" preview --host 127.0.0.1 --port "$PORT" --strictPort) >"$WORK/vite.log" 2>&1 &
VITE_PID=$!
for _ in $(seq 100); do curl -fs --noproxy '*' "http://127.0.0.1:$PORT/" >/dev/null && break; sleep 0.1; done

EXAMPLE_SHOTS=${EXAMPLE_SHOTS:-$CACHE/example}; export EXAMPLE_SHOTS; mkdir -p "$EXAMPLE_SHOTS"
CHROMIUM=$(command -v chromium) HOME=$WORK timeout 120 node "$PAGE/example.mjs" "http://127.0.0.1:$PORT" >"$WORK/example.out" 2>&1 ||
  fail "the browser test ends well: $(grep -v '^ok\|^FAILED' "$WORK/example.out" | tail -5) $(tail -3 "$WORK/vite.log")"
while IFS= read -r line; do
  case $line in "ok "*) pass "${line#ok }" ;; "FAILED "*) fail "${line#FAILED }" ;; esac
done <"$WORK/example.out"
[ "$(grep -c '^ok\|^FAILED' "$WORK/example.out")" = 10 ] || fail "all checks ran"
echo "screenshot: $EXAMPLE_SHOTS"
finish example
