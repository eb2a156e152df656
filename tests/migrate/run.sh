#!/usr/bin/env bash
# docs/migrate.md, as it stands there: streams of another server, copied into the binary. MIGRATE_FROM says which:
#   self  another process of the binary (the default: it needs nothing from elsewhere)
#   node  the Node reference server, from npm; it brings native packages along, which not every machine can install
#   PATH  the Rust reference server
. "$(dirname "$0")/../lib.sh"
MIGRATE_FROM=${MIGRATE_FROM:-self}

need_node || { skip "migration (needs node)"; finish migrate; }
workspace
free_port() { node -e 'const s=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})'; }
PORT=$(free_port) OLD=http://127.0.0.1:$PORT
case $MIGRATE_FROM in
  self)
    # With tokens, which the copy needs to read it.
    "$THALWEG_BIN" token new --name old --admin '*' >"$WORK/old.toml" 2>"$WORK/old.token"
    FROM_TOKEN=$(grep -oE 'tw[a-z0-9]*[._-][A-Za-z0-9_.-]+' "$WORK/old.token" | head -1)
    export FROM_TOKEN
    "$THALWEG_BIN" serve --listen "127.0.0.1:$PORT" --data "$WORK/old" --tokens "$WORK/old.toml" >"$WORK/old.log" 2>&1 & ;;
  node)
    REFERENCE=$CACHE/reference-0.3.7
    [ -e "$REFERENCE/complete" ] || { npm install --prefix "$REFERENCE" --no-audit --no-fund @durable-streams/server@0.3.7 >"$CACHE/reference.log" 2>&1 && touch "$REFERENCE/complete"; }
    [ -e "$REFERENCE/complete" ] || { skip "migration (npm cannot install the reference server)"; finish migrate; }
    cat >"$REFERENCE/reference.mjs" <<'JS'
import { DurableStreamTestServer } from "@durable-streams/server"
await new DurableStreamTestServer({ host: "127.0.0.1", port: Number(process.argv[2]) }).start()
JS
    node "$REFERENCE/reference.mjs" "$PORT" >"$WORK/old.log" 2>&1 & ;;
  *) "$MIGRATE_FROM" --host 127.0.0.1 --port "$PORT" --data-dir "$WORK/old" >"$WORK/old.log" 2>&1 & ;;
esac
OLD_PID=$!
trap 'kill "$OLD_PID" 2>/dev/null; stop_server KILL; rm -rf "$WORK"' EXIT
curl() { command curl --noproxy '*' -fsS "$@"; }
old() { curl ${FROM_TOKEN:+-H "authorization: Bearer $FROM_TOKEN"} "$@"; }
for _ in $(seq 100); do old -o /dev/null -X PUT "$OLD/v1/stream/probe" -H 'content-type: text/plain' 2>/dev/null && break; sleep 0.1; done
old -I -o /dev/null "$OLD/v1/stream/probe" || { tail -5 "$WORK/old.log"; fail "the reference server starts"; finish migrate; }
start_server || { fail "the server starts"; finish migrate; }

# ---- streams of every kind on the old server

put() { old -o /dev/null -X PUT "$OLD/v1/stream/$1" -H "content-type: $2" "${@:3}"; }
post() { old -o /dev/null -X POST "$OLD/v1/stream/$1" -H "content-type: $2" "${@:3}"; }
put events application/json
post events application/json -d '[{"n":1,"s":"a\nb, c"},[1,[2]],"ü",1.50,null]'
for n in $(seq 50); do post events application/json -d "{\"n\":$n}"; done
put 'sessions/a%20b' 'text/plain; charset=utf-8' -H 'stream-ttl: 86400'
printf 'one\r\ntwo\rthree' | post 'sessions/a%20b' text/plain --data-binary @-
put bytes application/octet-stream
head -c 5000000 /dev/urandom | tee "$WORK/bytes" | post bytes application/octet-stream --data-binary @-
put done text/plain
post done text/plain -d "over" -H 'stream-closed: true'
put empty application/json
printf '%s\n' events sessions/a%20b bytes done empty >"$WORK/names"

# ---- the copy

migrate() { env NO_PROXY='*' no_proxy='*' THALWEG="$THALWEG_BIN" "$ROOT/deploy/migrate.sh" "$OLD" "$BASE" "$@"; }
says() { local want=$1 got; shift; got=$("$@" 2>&1) || true; case $got in *"$want"*) return 0 ;; *) echo "  wanted: $want"; echo "  got:    ${got:0:400}"; return 1 ;; esac; }
check "all streams are copied" says "copied  empty" migrate <"$WORK/names"
check "JSON messages are the same" cmp -s <(old "$OLD/v1/stream/events" | node -e 'console.log(JSON.stringify(JSON.parse(require("fs").readFileSync(0))))') \
  <(curl "$BASE/v1/stream/events" | node -e 'console.log(JSON.stringify(JSON.parse(require("fs").readFileSync(0))))')
check "bytes are the same" cmp -s "$WORK/bytes" <("$THALWEG_BIN" stream read "$BASE/v1/stream/bytes")
check "text is the same" says $'one\r\ntwo\rthree' curl "$BASE/v1/stream/sessions/a%20b"
check "the content type comes along" says "text/plain; charset=utf-8" curl -I "$BASE/v1/stream/sessions/a%20b"
check "the time to live comes along" says "86400" curl -I "$BASE/v1/stream/sessions/a%20b"
check "what was closed is closed" says "Stream-Closed: true" curl -I "$BASE/v1/stream/done"
post events application/json -d '{"later":true}'
again() { migrate <"$WORK/names" >"$WORK/second" 2>&1; }
check "a later run adds what is new" again
check "and only that" test "$(curl "$BASE/v1/stream/events" | node -e 'console.log(JSON.parse(require("fs").readFileSync(0)).length)')" = 56
curl -o /dev/null -X POST "$BASE/v1/stream/events" -H 'content-type: application/json' -d '{"foreign":1}'
check "a copy that somebody else has written to is not called whole" says "FAILED  events" migrate <<<events
check "a stream that is not there is said to be missing" says "FAILED  nowhere" migrate <<<nowhere
finish migrate
