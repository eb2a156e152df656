#!/usr/bin/env bash
# Attacks on the running binary: requests that could be read in two ways, tokens, pages of other sites in a real browser, slow clients and floods,
# headers, paths and large inputs. Nothing may get through, the process must stay the same one, and its memory within bounds.
#   FILES="framing tokens browser slow": only these.
. "$(dirname "$0")/../lib.sh"
FILES=${FILES:-framing tokens browser slow}

[ "$THALWEG_KIND" = peer ] && { skip "attacks (ours only)"; finish attack; }
need_npm || { skip "attacks"; finish attack; }
workspace
# Beside node_modules, so that imports are found.
here=$NPM/attack-$$; mkdir -p "$here"; cp "$ROOT"/tests/attack/*.mjs "$here"/
trap 'stop_server KILL; rm -rf "$WORK" "$here"' EXIT
# Many sockets at a time.
ulimit -n "$(ulimit -Hn)" 2>/dev/null || true

# token NAME SCOPES...: its line goes to the file, itself to standard output.
token() { "$THALWEG_BIN" token new --name "$@" 2>"$WORK/token" >>"$WORK/tokens.toml" && tail -1 "$WORK/token"; }
ADMIN=$(token admin --admin '*') READER=$(token reader --read chat/) WRITER=$(token writer --write a/) GONE=$(token gone --admin '*' --expires 1s)
export ADMIN READER WRITER GONE

# attack FILE: its `ok claim` and `FAILED claim` lines; then the same process must be there, and well.
attack() {
  local pid=$SERVER_PID before=$PASSED
  BASE=$BASE PID=$pid LOG=$WORK/server.log DATA=$WORK/data CHROMIUM=$(command -v chromium) HOME=$WORK timeout 600 node "$here/$1.mjs" >"$WORK/$1.out" 2>&1 ||
    fail "the attacks of $1 end well: $(grep -v '^ok\|^FAILED' "$WORK/$1.out" | tail -8)"
  while IFS= read -r line; do
    case $line in "ok "*) pass "${line#ok }" ;; "FAILED "*) fail "${line#FAILED }" ;; esac
  done <"$WORK/$1.out"
  check "$1: the process is still there" kill -0 "$pid"
  check "$1: and well" test "$(curl -s -H "authorization: Bearer $ADMIN" "$BASE/health")" = ok
  check "$1: nothing panicked" bash -c "! grep -qi panicked '$WORK/server.log'"
  [ "$PASSED" -gt "$((before + 5))" ] || fail "$1: all attacks ran"
}

for file in $FILES; do
  if [ "$file" = browser ] && ! command -v chromium >/dev/null; then skip "attacks from a browser (needs chromium)"; continue; fi
  rm -rf "$WORK/data" "$WORK/server.log"
  flags=(--tokens "$WORK/tokens.toml" --reactors 2 --journal-segment-bytes 8MiB)
  [ "$file" = slow ] && flags+=(--max-connections 500 --max-body 8MiB)
  start_server "${flags[@]}" || { fail "the server starts for $file"; continue; }
  attack "$file"
  check "$file: it stops gracefully" stop_server
done
finish attack
