#!/usr/bin/env bash
# The TypeScript client's own test suite against a server of shapes. Nothing is downloaded but npm packages: the suite comes from a
# checkout of electric-sql/electric.
#
#   tests/electric/suite.sh CHECKOUT [BASE]       all of it; without BASE the binary under test is started (tests/lib.sh)
#   tests/electric/suite.sh --postgres CHECKOUT   only its Postgres, until Enter or a signal
#
# FILES chooses test files of the client (integration client stream fetch cache), PACKAGES what else of the checkout is run (react-hooks
# experimental y-electric), TESTS a name pattern. NODES=1: the binary as two nodes; the suite asks the one without the database.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../pg.sh"
PATH=$PATH:/usr/sbin
ONLY_POSTGRES=0; [ "${1:-}" = --postgres ] && { ONLY_POSTGRES=1; shift; }
CHECKOUT=${1:?a checkout of electric-sql/electric} URL=${2:-}
FILES=${FILES-integration client stream fetch cache} PACKAGES=${PACKAGES-react-hooks experimental y-electric}
# Other packages use the client as it is published.
CLIENT_PACKAGE=1.5.28
CHECKOUT=$(cd "$CHECKOUT" && pwd) || exit 1
# Addresses that the suite has hard-coded.
SUITE_PG=postgresql://postgres:password@localhost:54321/electric

need_node || { echo "node >= 20 with npm is needed"; exit 1; }
workspace

# ---- its Postgres

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
if listens 54321; then
  echo "using the Postgres that listens on port 54321"
else
  MAJOR=${MAJOR:-17}
  need_pg "$MAJOR" && PG_WANT_PORT=54321 pg_start "$MAJOR" || exit 1
  need_npm || exit 1
  (cd "$NPM" && node --input-type=module -e '
    import pg from "pg"
    const client = new pg.Client(process.argv[1])
    await client.connect()
    await client.query("CREATE DATABASE electric")
    await client.end()' "$PG_URL") || exit 1
fi
if [ "$ONLY_POSTGRES" = 1 ]; then echo "DATABASE_URL=$SUITE_PG"; read -r _ || sleep infinity; exit 0; fi

# ---- the suite, beside its node_modules

SUITE=$CACHE/electric-$(cat "$CHECKOUT/packages/typescript-client/package.json" "$CHECKOUT"/patches/* | cksum | cut -d' ' -f1)
CLIENT=$SUITE/packages/typescript-client
mkdir -p "$SUITE/packages"
cp "$CHECKOUT/tsconfig.base.json" "$SUITE/"
cp -r "$CHECKOUT/packages/typescript-client" "$SUITE/packages/"
if [ ! -e "$SUITE/complete" ]; then
  (cd "$CLIENT" && npm install --no-audit --no-fund) >"$SUITE/install.log" 2>&1 || { tail -5 "$SUITE/install.log"; exit 1; }
  # pnpm would apply this patch; without it the client has no server-sent events outside a browser.
  patch -s -p1 -d "$CLIENT/node_modules/@microsoft/fetch-event-source" <"$CHECKOUT/patches/@microsoft__fetch-event-source.patch" || exit 1
  touch "$SUITE/complete"
fi

# ---- the server, set as the suite expects it

if [ -z "$URL" ]; then
  export ELECTRIC_INSECURE=true ELECTRIC_ENABLE_INTEGRATION_TESTING=true ELECTRIC_CACHE_MAX_AGE=1 ELECTRIC_CACHE_STALE_AGE=3
  export ELECTRIC_SHAPE_CHUNK_BYTES_THRESHOLD=10000 DATABASE_URL=$SUITE_PG
  if [ "${NODES:-0}" = 1 ]; then
    . "$ROOT/tests/bucket/buckets.sh"
    need_versitygw && start_versitygw || { fail "versitygw starts"; finish electric; }
    AT=() NODE_PIDS=()
    for n in 0 1; do
      AT[$n]=127.0.0.1:$(free_port)
      [ $n = 0 ] || unset DATABASE_URL
      "$THALWEG_BIN" serve --node "n$n" --listen "${AT[$n]}" --data "$WORK/data-$n" --store "$LOCATION" --units 4 --commit-interval 5ms \
        >"$WORK/node-$n.out" 2>"$WORK/node-$n.log" & NODE_PIDS+=($!)
    done
    URL=http://${AT[1]}
  else
    start_server || { fail "the server starts"; finish electric; }
    URL=$BASE
  fi
fi
STOP='kill ${NGINX_PID:-} ${NODE_PIDS[@]} 2>/dev/null; wait ${NGINX_PID:-} ${NODE_PIDS[@]} 2>/dev/null; type stop_stores >/dev/null 2>&1 && stop_stores; stop_server KILL; rm -rf "$WORK"; pg_cleanup'
trap "$STOP" EXIT
export ELECTRIC_URL=${URL%/}
# The suite itself waits only ten seconds, and skips everything if that is not enough.
for _ in $(seq 600); do curl -fs --noproxy '*' "$ELECTRIC_URL/v1/health" 2>/dev/null | grep -q active && break; sleep 0.1; done

# ---- a cache in front of it

case " $FILES " in *" cache "*)
  if command -v nginx >/dev/null; then
    PROXY_PORT=$(node -e 'const s=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})')
    mkdir -p "$WORK/nginx"
    cat >"$WORK/nginx/nginx.conf" <<CONF
daemon off;
pid $WORK/nginx/pid;
error_log $WORK/nginx/error.log warn;
$([ "$(id -u)" = 0 ] && echo "user root;")
events { worker_connections 1024; }
http {
  access_log off;
  client_body_temp_path $WORK/nginx/body; proxy_temp_path $WORK/nginx/proxy;
  fastcgi_temp_path $WORK/nginx/fastcgi; uwsgi_temp_path $WORK/nginx/uwsgi; scgi_temp_path $WORK/nginx/scgi;
  proxy_cache_path $WORK/nginx/cache levels=1:2 keys_zone=shapes:1m max_size=200m inactive=10m use_temp_path=off;
  server {
    listen 127.0.0.1:$PROXY_PORT;
    location / {
      proxy_pass $ELECTRIC_URL;
      proxy_cache shapes;
      proxy_cache_methods GET HEAD;
      # One request for many clients, an old answer while a new one is fetched, and 304 where nothing changed.
      proxy_cache_lock on;
      proxy_cache_background_update on;
      proxy_cache_revalidate on;
      proxy_cache_use_stale error timeout;
      add_header X-Proxy-Cache \$upstream_cache_status;
    }
  }
}
CONF
    nginx -e "$WORK/nginx/error.log" -p "$WORK/nginx" -c "$WORK/nginx/nginx.conf" &
    NGINX_PID=$!
    export ELECTRIC_PROXY_CACHE_URL=http://127.0.0.1:$PROXY_PORT
  else
    skip "the suite behind a cache (needs nginx)"; FILES=${FILES/cache/}
  fi ;;
esac

# ---- one file after the other, then package after package

# run NAME FOLDER [FILE]: their tests, or those of a file; adds up.
run() {
  local file=$1 counts p f
  (cd "$2" && npx vitest run ${3:+"$3"} --typecheck.enabled=false --coverage.enabled=false ${TESTS:+-t "$TESTS"} \
    --reporter=json --outputFile="$WORK/$file.json") >"$WORK/$file.log" 2>&1 </dev/null
  counts=$(node -e '
    const fs = require("fs"), out = process.argv[1]
    if (!fs.existsSync(out)) process.exit(1)
    const report = JSON.parse(fs.readFileSync(out))
    for (const file of report.testResults) if (!file.assertionResults.length) console.error("FAILED  " + file.name + ": " + file.message)
    for (const file of report.testResults) for (const test of file.assertionResults)
      if (test.status === "failed") console.error("FAILED  " + test.fullName + ": " + (test.failureMessages[0] ?? "").split("\n")[0])
    console.log(report.numPassedTests, report.numFailedTests)' "$WORK/$file.json") || { tail -5 "$WORK/$file.log"; counts="0 1"; }
  read -r p f <<<"$counts"
  [ "$p$f" = 00 ] && { tail -5 "$WORK/$file.log"; f=1; }
  echo "$file: $p passed, $f failed"
  PASSED=$((PASSED + p)) FAILED=$((FAILED + f))
}
for file in $FILES; do run "$file" "$CLIENT" "test/$file.test.ts"; done

for package in $PACKAGES; do
  there=$SUITE/packages/$package
  mkdir -p "$there" && cp -r "$CHECKOUT/packages/$package/." "$there/"
  if [ ! -e "$there/complete" ]; then
    sed -i "s#\"workspace:[^\"]*\"#\"$CLIENT_PACKAGE\"#" "$there/package.json"
    (cd "$there" && npm install --no-audit --no-fund) >"$there/install.log" 2>&1 || { tail -5 "$there/install.log"; fail "$package is installed"; continue; }
    touch "$there/complete"
  fi
  run "$package" "$there"
done
[ "$FAILED" = 0 ] || [ ! -s "$WORK/server.log" ] || tail -5 "$WORK/server.log"
finish electric
