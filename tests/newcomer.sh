#!/usr/bin/env bash
# A newcomer's first five minutes: the README's lines, wrong flags, stopping, starting twice.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/pg.sh"
workspace

# block PAGE MARK N: the Nth block of code between a mark and `<!-- end -->` (or the first after it), for our address.
block() { awk -v mark="<!-- $2 -->" -v wanted="$3" '$0 == mark {on = 1} $0 == "<!-- end -->" {on = 0} on && /^```/ {inside = !inside; n += inside; next} on && inside && n == wanted' "$ROOT/$1" | sed -e "s#http://127.0.0.1:4437#$BASE#g" -e "s#http://127.0.0.1:4438#${BASE2:-}#g" -e "s#http://127.0.0.1:4439#${BASE3:-}#g"; }
# pasted PAGE MARK: runs all blocks as if they were pasted one after the other into a shell; the Nth one's output is `part N`.
pasted() {
  local n=0 text script=$WORK/paste.sh
  : >"$script"
  while text=$(block "$1" "$2" $((n + 1))); [ -n "$text" ]; do
    n=$((n + 1))
    printf 'echo "@@ begin %d"\n%s\necho; echo "@@ end %d"\n' $n "$text" $n >>"$script"
  done
  check "$1 has blocks to paste" test "$n" -ge 5
  # No block may wait for input: the whole of it ends by itself.
  (cd "$WORK" && timeout 90 bash -e -o pipefail "$script" >"$WORK/paste.out" 2>&1 </dev/null)
  for n in $(seq $n); do
    text=$(block "$1" "$2" $n | head -1)
    if grep -q "^@@ end $n$" "$WORK/paste.out"; then pass "$1, block $n can be pasted: ${text:0:70}…"; else fail "$1, block $n: $text: $(tail -5 "$WORK/paste.out")"; fi
  done
}
part() { sed -n "/^@@ begin $1$/,/^@@ end $1$/p" "$WORK/paste.out" | tr -d '\r'; }
says() { local want=$1; shift; local got; got=$("$@" 2>&1) || true; case $got in *"$want"*) return 0 ;; *) echo "  wanted: $want"; echo "  got:    $got"; return 1 ;; esac; }
refuses() { local want=$1; shift; local got code=0; got=$(timeout 20 "$@" 2>&1) || code=$?; case $code:$got in 0:* | 124:*) echo "  not refused: $*"; return 1 ;; *"$want"*) return 0 ;; *) echo "  wanted: $want"; echo "  got:    $got"; return 1 ;; esac; }

check "--help shows examples" says "curl -X PUT" "$THALWEG_BIN" --help
check "serve --help explains the order of settings" says "Flags win over the environment" "$THALWEG_BIN" serve --help
check "--version says the version" says "thalweg " "$THALWEG_BIN" --version
check "a wrong flag is refused with the right one" refuses "--listen" "$THALWEG_BIN" serve --lissten 127.0.0.1:0
check "a bad duration says how to write one" refuses '`30s`' "$THALWEG_BIN" serve --long-poll-timeout 30
check "a bad address says how to write one" refuses "HOST:PORT" "$THALWEG_BIN" serve --listen 4437
check "a bad choice names the choices" refuses "buffered" "$THALWEG_BIN" serve --durability fast
printf 'listn = "127.0.0.1:0"\n' >"$WORK/bad.toml"
check "a wrong key in the file is refused with the right one" refuses 'did you mean `listen`' "$THALWEG_BIN" serve --config "$WORK/bad.toml"
check "a missing file is named" refuses "nowhere.toml" "$THALWEG_BIN" serve --config "$WORK/nowhere.toml"

if start_server --long-poll-timeout 500ms; then
  pass "the server starts"
  check "it prints its address" says "$BASE" cat "$WORK/server.out"
  check "it prints its data folder" says "$WORK/data" cat "$WORK/server.out"
  check "it prints its durability" says "durable" cat "$WORK/server.out"
  check "it prints a line to try" says "curl" cat "$WORK/server.out"
  check "/health answers" says "ok" curl -fsS "$BASE/health"
  check "/metrics answers" says "thalweg_appends_total" curl -fsS "$BASE/metrics"
  check "/ says what this is" says "durable streams" curl -fsS "$BASE/"
  export THALWEG_SERVER=$BASE NO_PROXY=127.0.0.1
  mkdir -p "$WORK/bin"; ln -sf "$THALWEG_BIN" "$WORK/bin/thalweg"; PATH=$WORK/bin:$PATH
  pasted README.md "first five minutes"
  check "a read says where to go on" says "Stream-Next-Offset: " part 2
  check "what is appended meanwhile is seen live" says "data:!" part 3
  check "a message that a producer repeats is told from a new one" says "200 204" bash -c 'sed -n "s#^HTTP/1.1 \([0-9]*\).*#\1#p" | xargs' < <(part 5)
  check "a closed stream says so" says "Stream-Closed: true" part 6
  check "tail ends with the stream" says "1000" part 7
  check "the list has a header, sizes and types" says "NAME SIZE TYPE STATE KEEPS" bash -c "tr -s ' '" < <(part 7)
  check "the status says that it serves" says "health       ok" part 7
  check "the README's lines are all there" says "999 1000" bash -c 'thalweg stream read app | xargs'
  if need_npm; then
    # Beside node_modules, so that the import is found.
    chat=$NPM/chat-$$.mjs
    awk '/<!-- chat.mjs -->/ {on = 1} on && /^```/ {inside = !inside; if (!inside) exit; next} on && inside' "$ROOT/README.md" | sed "s#http://127.0.0.1:4437#$BASE#g" >"$chat"
    check "the README's JavaScript ends by itself and shows what it wrote" says "100 { n: 100" timeout 20 node "$chat"
    check "and adds as much when it is run again" says "200 { n: 100" timeout 20 node "$chat"
    rm -f "$chat"
  else
    skip "the README's JavaScript (needs npm)"
  fi
  check "the README's stream reads back" says "hello" curl -fsS "$BASE/v1/stream/hello?offset=-1"
  check "a second server on the same folder is refused" refuses "in use" "$THALWEG_BIN" serve --listen 127.0.0.1:0 --data "$WORK/data"
  check "a second server on the same address is refused" refuses "${BASE#http://}" "$THALWEG_BIN" serve --listen "${BASE#http://}" --data "$WORK/other"
  check "check refuses a folder in use" refuses "in use" "$THALWEG_BIN" check "$WORK/data"
  check "SIGTERM stops it with code 0" stop_server TERM
  check "the ready file is gone after a graceful stop" test ! -e "$WORK/ready"
  check "check finds nothing wrong" "$THALWEG_BIN" check "$WORK/data"
  check "it starts again" start_server
  check "what was appended is still there" says "hello" curl -fsS "$BASE/v1/stream/hello?offset=-1"
  check "SIGINT stops it with code 0" stop_server INT
else
  fail "the server starts"
fi
# ---- three nodes on one laptop: the blocks of their tour, at other ports

# three_nodes FLAG...: runs the line that starts them, with these flags, in $WORK; sets SERVER_PID, and BASE, BASE2 and BASE3.
three_nodes() {
  rm -f "$WORK/ready"
  # shellcheck disable=SC2046
  (cd "$WORK" && exec "$THALWEG_BIN" $(block README.md "start three nodes" 1 | sed 's/^thalweg //') --ready-file "$WORK/ready" "$@") >"$WORK/nodes.out" 2>"$WORK/nodes.err" &
  SERVER_PID=$!
  for _ in $(seq 400); do [ -s "$WORK/ready" ] && break; kill -0 $SERVER_PID 2>/dev/null || return 1; sleep 0.1; done
  { read -r first; read -r second; read -r third; } <"$WORK/ready"
  BASE=http://$first BASE2=http://$second BASE3=http://$third
}
if three_nodes --listen 127.0.0.1:0; then
  pass "three nodes start"
  check "they say what to try" says "live=sse" cat "$WORK/nodes.out"
  check "a second start at the same address says which one is in use" refuses "${BASE#http://} cannot be used" "$THALWEG_BIN" dev --nodes 3 --listen "${BASE#http://}" --data "$WORK/other"
  before=$BASE
  pasted README.md "three nodes"
  check "another node reads what one has appended" says "one " part 1
  check "a third one follows it live" says "data:two " part 2
  check "the list has all of them" says "6 units, each with an owner" part 3
  check "nothing is lost with the node that owned it" says "one two three " part 5
  check "the dead node is said to be gone" says "gone" part 5
  check "a drained node has no units" says "draining" part 6
  check "the bucket shows what it has" says "made for  nodes, 6 units" part 7
  check "and is whole" says "bucket is whole" part 7
  check "dev says that a node has ended, and how to start it again" says "to start it again" cat "$WORK/nodes.out"
  owner=$(sed -n 's/^\(node-[0-9]\) has ended.*/\1/p' "$WORK/nodes.out")
  alive=$BASE; [ "$owner" != node-1 ] || alive=$BASE2
  check "the last node cannot be drained" refuses "last_node" bash -c "for n in node-1 node-2 node-3; do [ \$n = '$owner' ] || thalweg node drain \$n --server '$alive' || exit; done"
  check "an unknown node is refused with the names of those that live" refuses "there are:" thalweg node drain nobody --server "$alive"
  check "SIGINT stops all of them with code 0" stop_server INT
  check "and leaves no process" bash -c "! ls '$WORK'/three/*.pid 2>/dev/null"
  check "they start again" three_nodes --listen "${before#http://}"
  check "with what they had" says "one two three " curl -fsS --retry 20 --retry-delay 1 "$BASE3/v1/stream/tour?offset=-1"
  check "SIGTERM stops all of them with code 0" stop_server TERM
else
  cat "$WORK/nodes.err"
  fail "three nodes start"
fi
unset BASE2 BASE3
if start_server; then
  check "a server that is no node says so" refuses "no node" thalweg node ls --server "$BASE"
  stop_server
fi

# ---- a certificate for development: the recipe of the page on security

certificate() { (cd "$WORK" && bash -e -c "$(block docs/ops/security.md certificate 1)"); }
if command -v openssl >/dev/null; then
  check "the recipe for a certificate works" certificate
  if start_server --tls-cert "$WORK/cert.pem" --tls-key "$WORK/key.pem"; then
    BASE=${BASE/http:/https:}
    check "curl trusts it" curl -fsS -o /dev/null --cacert "$WORK/cert.pem" "$BASE/health"
    # The image's check of its health, with its port and file; and where a flag, not the environment, asks for TLS.
    health=$(sed -n 's/^HEALTHCHECK.* CMD //p' "$ROOT/deploy/Dockerfile")
    check "the container's health check asks a server with TLS" env THALWEG_LISTEN="${BASE#https://}" THALWEG_TLS_CERT="$WORK/cert.pem" sh -c "$health"
    check "also where the environment does not tell of it" env THALWEG_LISTEN="${BASE#https://}" sh -c "$health"
    check "thalweg trusts it" "$THALWEG_BIN" status --quiet --ca "$WORK/cert.pem" --server "$BASE"
    need_node && check "node trusts it" env NODE_EXTRA_CA_CERTS="$WORK/cert.pem" node -e "fetch('$BASE/health').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"
    stop_server
  else
    fail "the server starts with the certificate"
  fi
else
  skip "the recipe for a certificate (needs openssl)"
fi

# ---- shapes: the blocks of their quick start, one after the other in one shell, against a Postgres of ours

check "a database without a secret is refused" refuses "--shape-secret" "$THALWEG_BIN" serve --listen 127.0.0.1:0 --data "$WORK/x" --database-url postgres://h/d
check "and says how Electric's variables say it" refuses "ELECTRIC_SECRET" env DATABASE_URL=postgres://h/d "$THALWEG_BIN" serve --listen 127.0.0.1:0 --data "$WORK/x"
check "what is no address of a database is refused" refuses "--database-url" "$THALWEG_BIN" serve --listen 127.0.0.1:0 --data "$WORK/x" --shape-insecure on --database-url nonsense
# `make run` is `thalweg dev`: a DATABASE_URL for another program must not prevent the start.
DATABASE_URL=postgres://nobody@127.0.0.1:1/nothing "$THALWEG_BIN" dev --listen 127.0.0.1:0 --data "$WORK/dev" --ready-file "$WORK/dev-ready" >/dev/null 2>"$WORK/dev.log" &
SERVER_PID=$!
for _ in $(seq 200); do [ -s "$WORK/dev-ready" ] && break; sleep 0.05; done
BASE=http://$(cat "$WORK/dev-ready" 2>/dev/null)
check "dev serves streams while a database cannot be reached" curl -fsS -o /dev/null -X PUT "$BASE/v1/stream/a" -H 'content-type: text/plain'
check "and says so of shapes" says "starting" curl -fsS "$BASE/v1/health"
check "SIGTERM stops it with code 0" stop_server TERM
if need_pg 15 && pg_start 15; then
  if start_server --database-url "$PG_URL" --shape-insecure on; then
    for _ in $(seq 100); do [ "$(curl -s -o /dev/null -w '%{http_code}' "$BASE/v1/health")" = 200 ] && break; sleep 0.1; done
    export THALWEG_SERVER=$BASE NO_PROXY=127.0.0.1 DB=$PG_URL
    mkdir -p "$WORK/bin"; ln -sf "$THALWEG_BIN" "$WORK/bin/thalweg"; ln -sf "$(pg_bin 15)/psql" "$WORK/bin/psql"; PATH=$WORK/bin:$PATH
    pasted docs/shapes/quick-start.md "quick start"
    handle=$(part 3 | sed -n 's/^handle=//p')
    check "its rows are there" says 'call Ann' part 2
    check "the next answer says that this is all" says 'up-to-date' part 3
    check "what SQL changes meanwhile is told" says '"done":"true"' part 4
    check "the shape is listed" says 'public.items' part 5
    check "tail begins with the rows as they are now" says '"done":"true"' part 6
    check "tail of a table that is not there says so" refuses "does not exist" thalweg shape tail nowhere
    check "a shape is dropped by its handle" thalweg shape drop "$handle"
    check "and is gone then" refuses "no_shape" thalweg shape drop "$handle"
    check "a large shape shows that all of it is there" says "messages  30000" bash -c 'psql -q "$DB" -c "CREATE TABLE large AS SELECT n AS id, repeat(md5(n::text), 20) AS t FROM generate_series(1, 30000) n" && thalweg shape create large'
    check "metrics count shapes" says "thalweg_shapes 1" curl -fsS "$BASE/metrics"
    check "and what is behind" says "thalweg_shape_lag_bytes 0" curl -fsS "$BASE/metrics"
    check "SIGTERM stops it with code 0" stop_server TERM
  else
    fail "the server starts with a database"
  fi
  pg_cleanup
else
  skip "the quick start of shapes (needs Postgres)"
fi
check "check says that a folder is missing" refuses "nowhere" "$THALWEG_BIN" check "$WORK/nowhere"
finish newcomer
