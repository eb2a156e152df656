#!/usr/bin/env bash
# deploy/nginx.conf and deploy/nginx-shapes.conf in front of the binary: everything works through it, and many readers cost thalweg as much as one.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/shapes.sh"

PATH=$PATH:/usr/sbin
for tool in nginx openssl; do command -v $tool >/dev/null || { skip "behind nginx (needs $tool)"; finish nginx; }; done
need_node || { skip "behind nginx (needs node)"; finish nginx; }
workspace
# nginx passes on the name that it was asked by.
start_server --long-poll-timeout 3s --allow-host localhost || { fail "the server starts"; finish nginx; }

# ---- nginx, from the very file, with addresses and folders of our own

DIR=$WORK/nginx; mkdir -p "$DIR/cache"; chmod -R a+rwX "$WORK" "$DIR"
PORT=$(node -e 'const s=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})')
(
  cd "$DIR" || exit 1
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=test authority" -keyout ca.key -out ca.pem
  openssl req -newkey rsa:2048 -nodes -subj "/CN=localhost" -keyout leaf.key -out leaf.csr
  printf 'subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n' >leaf.ext
  openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile leaf.ext -out leaf.pem
) >"$WORK/openssl.log" 2>&1 || { tail -3 "$WORK/openssl.log"; fail "certificates are made"; finish nginx; }
sed -e "s#127.0.0.1:4437#${BASE#http://}#" -e "s#listen 443#listen 127.0.0.1:$PORT#" -e "s#/var/cache/nginx/thalweg#$DIR/cache/thalweg#" \
  -e "s#/etc/ssl/private/streams.example.org.key#$DIR/leaf.key#" -e "s#/etc/ssl/streams.example.org.pem#$DIR/leaf.pem#" \
  "$ROOT/deploy/nginx.conf" >"$DIR/site.conf"
cat >"$DIR/nginx.conf" <<CONF
daemon off;
pid $DIR/nginx.pid;
error_log $DIR/error.log warn;
worker_processes 2;
$([ "$(id -u)" = 0 ] && echo "user root;")
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path $DIR/body; proxy_temp_path $DIR/proxy; fastcgi_temp_path $DIR/fastcgi; uwsgi_temp_path $DIR/uwsgi; scgi_temp_path $DIR/scgi;
  include $DIR/site.conf;
}
CONF
check "nginx takes the file" nginx -t -q -e "$DIR/error.log" -p "$DIR" -c "$DIR/nginx.conf"
nginx -e "$DIR/error.log" -p "$DIR" -c "$DIR/nginx.conf" &
NGINX_PID=$!
trap 'kill "$NGINX_PID" 2>/dev/null; wait "$NGINX_PID" 2>/dev/null; stop_server KILL; rm -rf "$WORK"' EXIT

OUT=https://localhost:$PORT
curl() { command curl --noproxy '*' --resolve "localhost:$PORT:127.0.0.1" --cacert "$DIR/ca.pem" -sS "$@"; }
for _ in $(seq 100); do curl -f "$OUT/health" >/dev/null 2>&1 && break; sleep 0.1; done
says() { local want=$1 got; shift; got=$("$@" 2>&1) || true; case $got in *"$want"*) return 0 ;; *) echo "  wanted: $want"; echo "  got:    ${got:0:600}"; return 1 ;; esac; }
lacks() { local not=$1 got; shift; got=$("$@" 2>&1) || true; case $got in *"$not"*) echo "  unwanted: $not"; return 1 ;; *) return 0 ;; esac; }
stream() { NO_PROXY='*' "$THALWEG_BIN" stream "$@" --server "$OUT" --ca "$DIR/ca.pem"; }
S=$OUT/v1/stream/chat

# ---- one of each

check "health is served by HTTP/2" says "2" curl -o /dev/null -w '%{http_version}' "$OUT/health"
check "a stream is created, under the address from outside" says "location: $S" curl -i -X PUT "$S" -H 'content-type: text/plain'
check "an append goes through" says " 204" curl -i -X POST "$S" -H 'content-type: text/plain' -d one
check "a read goes through" says "one" curl "$S?offset=-1"
curl -X POST "$S" -H 'content-type: text/plain' -d two
check "the end of a stream is never an old one" says "onetwo" curl "$S?offset=-1"
offset() { command curl -fsS -I "$BASE/v1/stream/$1" | tr -d '\r' | sed -n 's/^stream-next-offset: //ip'; }
check "HEAD tells of the end" says "stream-next-offset: $(offset chat)" curl -I "$S"
check "metrics stay inside" says " 404" curl -i "$OUT/metrics"
check "a refusal passes with its code" says '"not_found"' curl "$OUT/v1/stream/nowhere?offset=-1"
check "a body over the limit is refused, not cut off" says "413" curl -o /dev/null -w '%{http_code}' -X POST "$S" -H 'content-type: text/plain' --data-binary @<(head -c 34000000 /dev/zero)

head -c 9000000 /dev/zero | command curl -fsS -X PUT "$BASE/v1/stream/big" -H 'content-type: application/octet-stream' --data-binary @- -o /dev/null
command curl -fsS -X POST "$BASE/v1/stream/big" -H 'content-type: application/octet-stream' -d more
curl -o /dev/null "$OUT/v1/stream/big?offset=-1"
check "a page below the end is kept" says "x-cache: HIT" curl -D - -o /dev/null "$OUT/v1/stream/big?offset=-1"
check "whoever comes with a token has pages of their own" says "x-cache: MISS" curl -D - -o /dev/null -H 'authorization: Bearer other' "$OUT/v1/stream/big?offset=-1"

(sleep 0.5; curl -X POST "$S" -H 'content-type: text/plain' -d three) &
check "a long-poll gets what comes" says "three" curl "$S?offset=$(offset chat)&live=long-poll"
wait $!
now() { curl -w ' %{http_code}' "$S?offset=now&live=long-poll"; }
(sleep 0.5; curl -X POST "$S" -H 'content-type: text/plain' -d now) &
check "a long-poll from now on gets what comes" says "now 200" now
wait $!
check "and another one after it does not get the same" says " 204" now
check "a long-poll without news ends" says "204" curl -o /dev/null -w '%{http_code}' "$S?offset=$(offset chat)&live=long-poll"
(curl -N "$S?offset=-1&live=sse" >"$WORK/sse" & echo $! >"$WORK/sse.pid"; wait) 2>/dev/null &
for _ in $(seq 50); do grep -q streamNextOffset "$WORK/sse" 2>/dev/null && break; sleep 0.1; done
began=$(date +%s%N)
curl -X POST "$S" -H 'content-type: text/plain' -d "four"
for _ in $(seq 100); do grep -q four "$WORK/sse" && break; sleep 0.02; done
took=$((($(date +%s%N) - began) / 1000000))
kill "$(cat "$WORK/sse.pid")" 2>/dev/null
check "SSE is not held back ($took ms)" test "$took" -lt 1000

# ---- the command line, with TLS

stream create lines --json 2>/dev/null
check "thalweg stream appends through TLS" stream append lines --lines < <(seq 1000)
check "thalweg stream reads it back" cmp -s <(seq 1000) <(stream read lines)
check "a certificate of an unknown authority is refused" says "no trust" env NO_PROXY='*' "$THALWEG_BIN" stream read lines --server "$OUT"

# ---- many readers, one request

node "$ROOT/tests/nginx/readers.mjs" "$BASE" "$OUT" "$DIR/ca.pem" >"$WORK/readers.out" 2>&1 || fail "the readers end well: $(tail -12 "$WORK/readers.out")"
while IFS= read -r line; do
  case $line in "ok "*) pass "${line#ok }" ;; "FAILED "*) fail "${line#FAILED }" ;; esac
done <"$WORK/readers.out"
[ "$(grep -c '^ok\|^FAILED' "$WORK/readers.out")" = 4 ] || fail "all checks of the readers ran"
check "nginx has nothing to complain about" lacks "[" grep -v 'client intended to send too large body' "$DIR/error.log"
shapes_behind_nginx
finish nginx
