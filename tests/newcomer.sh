#!/usr/bin/env bash
# What somebody does in the first five minutes: the README's lines, wrong flags, stopping, starting twice.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/pg.sh"
workspace

# run the README's lines as they stand there, against our address
readme_lines() { sed -n '/<!-- first five minutes -->/,/<!-- end -->/p' "$ROOT/README.md" | grep -E '^curl |(^|\| )thalweg stream ' | sed "s#http://127.0.0.1:4437#$BASE#g"; }
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
  number=0
  export THALWEG_SERVER=$BASE NO_PROXY=127.0.0.1
  mkdir -p "$WORK/bin"; ln -sf "$THALWEG_BIN" "$WORK/bin/thalweg"; PATH=$WORK/bin:$PATH
  while IFS= read -r line; do
    number=$((number + 1))
    out=$(timeout 20 bash -c "$line" 2>&1); code=$?
    # A live tail ends only when it is cut.
    if [ $code = 0 ] || { [ $code = 124 ] && [[ $line == *live=sse* || $line == *" tail "* ]]; }; then pass "README line $number works: ${line:0:60}…"; else fail "README line $number: $line: $out"; fi
    last=$out
  done < <(readme_lines | sed 's#^curl #curl -fsS #; s#^curl -fsS -N#timeout 3 curl -fsS -N#; s#^thalweg stream tail#timeout 3 thalweg stream tail#')
  check "README has lines to try" test "$number" -ge 5
  check "the README's lines are all there" says "999 1000" bash -c 'thalweg stream read app | xargs'
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
# ---- shapes: the lines of their quick start, one after the other in one shell, against a Postgres of ours

quick_start_lines() { sed -n '/<!-- quick start -->/,/<!-- end -->/p' "$ROOT/docs/shapes/quick-start.md" | grep -E '^(curl|psql|handle=|thalweg shape) ?' | sed "s#http://127.0.0.1:4437#$BASE#g"; }
check "a database without a secret is refused" refuses "--shape-secret" "$THALWEG_BIN" serve --listen 127.0.0.1:0 --data "$WORK/x" --database-url postgres://h/d
check "and says how Electric's variables say it" refuses "ELECTRIC_SECRET" env DATABASE_URL=postgres://h/d "$THALWEG_BIN" serve --listen 127.0.0.1:0 --data "$WORK/x"
check "what is no address of a database is refused" refuses "--database-url" "$THALWEG_BIN" serve --listen 127.0.0.1:0 --data "$WORK/x" --shape-insecure on --database-url nonsense
# `make run` is `thalweg dev`: whoever has DATABASE_URL set for something else is not kept from starting.
DATABASE_URL=postgres://nobody@127.0.0.1:1/nothing "$THALWEG_BIN" dev --listen 127.0.0.1:0 --data "$WORK/dev" --ready-file "$WORK/dev-ready" >/dev/null 2>"$WORK/dev.log" &
SERVER_PID=$!
for _ in $(seq 200); do [ -s "$WORK/dev-ready" ] && break; sleep 0.05; done
BASE=http://$(cat "$WORK/dev-ready" 2>/dev/null)
check "dev serves streams while a database cannot be reached" curl -fsS -o /dev/null -X PUT "$BASE/v1/stream/a" -H 'content-type: text/plain'
check "and says so of shapes" says "starting" curl -fsS "$BASE/v1/health"
check "SIGTERM stops it with code 0" stop_server TERM
if need_pg 15 && pg_start 15; then
  if start_server --database-url "$PG_URL" --shape-insecure on --shape-sse-lifetime 1s; then
    for _ in $(seq 100); do [ "$(curl -s -o /dev/null -w '%{http_code}' "$BASE/v1/health")" = 200 ] && break; sleep 0.1; done
    export THALWEG_SERVER=$BASE NO_PROXY=127.0.0.1 DB=$PG_URL
    mkdir -p "$WORK/bin"; ln -sf "$THALWEG_BIN" "$WORK/bin/thalweg"; ln -sf "$(pg_bin 15)/psql" "$WORK/bin/psql"; PATH=$WORK/bin:$PATH
    number=0
    # `handle` is what one line finds out and the next ones use.
    handle=
    while IFS= read -r line; do
      number=$((number + 1))
      case $line in
        handle=*) eval "$line"; export handle; out=$handle code=0; [ -n "$handle" ] || code=1 ;;
        "thalweg shape tail"*) out=$(timeout 3 bash -c "$line" 2>&1); code=$?; [ $code = 124 ] && code=0 ;;
        *) out=$(timeout 20 bash -c "$line" 2>&1); code=$? ;;
      esac
      if [ $code = 0 ]; then pass "quick start line $number works: ${line:0:60}…"; else fail "quick start line $number: $line: $out"; fi
      case $line in
        *" -i "*) check "  its rows are there" says 'call Ann' echo "$out" ;;
        *offset=0_0*) check "  it says that this is all" says 'up-to-date' echo "$out" ;;
        *" tail "*) check "  what SQL changed is told" says '"done":"true"' echo "$out" ;;
        *" ls"*) check "  the shape is listed" says 'public.items' echo "$out" ;;
      esac
    done < <(quick_start_lines | sed 's#^curl #curl -fsS #')
    check "the quick start has lines to try" test "$number" -ge 10
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
