#!/usr/bin/env bash
# What deploy/ has for nodes, as it stands there: nginx as their load balancer, the command line of the Kubernetes manifest, and streams of
# a data folder moved to nodes and back. And `thalweg store ls` and `check` beside them, on a prefix that is damaged, and on one that is not.
. "$(dirname "$0")/../lib.sh"

command -v python3 >/dev/null || { skip "deployments of nodes (needs python3)"; finish deploy; }
workspace
NODES_PID= NGINX_PID= KUBE_PIDS=
end() { for pid in $NGINX_PID $NODES_PID $KUBE_PIDS; do kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; done; stop_server KILL; rm -rf "$WORK"; }
trap end EXIT
says() { local want=$1 got; shift; got=$("$@" 2>&1) || true; case $got in *"$want"*) return 0 ;; *) echo "  wanted: $want"; echo "  got:    ${got:0:600}"; return 1 ;; esac; }
refused() { local want=$1 got code=0; shift; got=$("$@" 2>&1) || code=$?; case $code:$got in 0:*) echo "  not refused"; return 1 ;; *"$want"*) return 0 ;; *) echo "  wanted: $want"; echo "  got:    ${got:0:600}"; return 1 ;; esac; }
export NO_PROXY='*' no_proxy='*'
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# start_nodes FLAG...: three of them; sets NODES_PID, STORE, and A, B and C, their URLs.
start_nodes() {
  rm -f "$WORK/nodes.ready"
  "$THALWEG_BIN" dev --nodes 3 --listen 127.0.0.1:0 --data "$WORK/nodes" --ready-file "$WORK/nodes.ready" "$@" >"$WORK/nodes.out" 2>&1 &
  NODES_PID=$! STORE=file://$WORK/nodes/bucket
  for _ in $(seq 600); do [ -s "$WORK/nodes.ready" ] && break; sleep 0.1; done
  { read -r a; read -r b; read -r c; } <"$WORK/nodes.ready" || return 1
  A=http://$a B=http://$b C=http://$c
}
stop_nodes() { kill -TERM "$NODES_PID"; wait "$NODES_PID"; local code=$?; NODES_PID=; return $code; }
put() { curl -fsS -o /dev/null -X PUT "$1" -H 'content-type: text/plain' --retry 8; }
post() { curl -fsS -o /dev/null -X POST "$1" -H 'content-type: text/plain' --data-binary "$2"; }
field() { python3 -c 'import json, sys; said = json.load(sys.stdin); print(eval(sys.argv[1]))' "$1"; }

# Small sizes, so that data settles and merges within moments.
SMALL="--settle-bytes 256KiB --settle-after 300ms --window-bytes 1MiB --chunk-cache-bytes 1MiB --allow-host localhost"
# shellcheck disable=SC2086
start_nodes $SMALL || { cat "$WORK/nodes.out"; fail "three nodes start"; finish deploy; }

# ---- nginx in front of them, from the very file

PATH=$PATH:/usr/sbin
if command -v nginx >/dev/null && command -v openssl >/dev/null; then
  DIR=$WORK/nginx; mkdir -p "$DIR"; chmod a+rx "$WORK" "$DIR"
  PORT=$(free_port)
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE -keyout "$DIR/leaf.key" -out "$DIR/leaf.pem" 2>/dev/null
  sed -e "s#10.0.0.1:4437#${A#http://}#" -e "s#10.0.0.2:4437#${B#http://}#" -e "s#10.0.0.3:4437#${C#http://}#" -e "s#listen 443#listen 127.0.0.1:$PORT#" \
    -e "s#/etc/ssl/private/streams.example.org.key#$DIR/leaf.key#" -e "s#/etc/ssl/streams.example.org.pem#$DIR/leaf.pem#" "$ROOT/deploy/nginx-nodes.conf" >"$DIR/site.conf"
  cat >"$DIR/nginx.conf" <<CONF
daemon off;
pid $DIR/nginx.pid;
error_log $DIR/error.log warn;
$([ "$(id -u)" = 0 ] && echo "user root;")
events { worker_connections 1024; }
http {
  log_format tried '\$request_method \$status \$upstream_addr \$upstream_status';
  access_log $DIR/access.log tried;
  client_body_temp_path $DIR/body; proxy_temp_path $DIR/proxy; fastcgi_temp_path $DIR/fastcgi; uwsgi_temp_path $DIR/uwsgi; scgi_temp_path $DIR/scgi;
  include $DIR/site.conf;
}
CONF
  check "nginx takes the file" nginx -t -q -e "$DIR/error.log" -p "$DIR" -c "$DIR/nginx.conf"
  nginx -e "$DIR/error.log" -p "$DIR" -c "$DIR/nginx.conf" & NGINX_PID=$!
  OUT=https://localhost:$PORT
  out() { curl --resolve "localhost:$PORT:127.0.0.1" --cacert "$DIR/leaf.pem" -sS "$@"; }
  for _ in $(seq 100); do out -f "$OUT/health" >/dev/null 2>&1 && break; sleep 0.1; done
  check "health is served" says ok out "$OUT/health"
  check "a stream is created, under the address from outside" says "location: $OUT/v1/stream/chat" out -i -X PUT "$OUT/v1/stream/chat" -H 'content-type: text/plain'
  for word in one two three; do out -o /dev/null -X POST "$OUT/v1/stream/chat" -H 'content-type: text/plain' -d "$word "; done
  check "appends and reads go to any node" says "one two three " out "$OUT/v1/stream/chat?offset=-1"
  (sleep 0.5; post "$B/v1/stream/chat" "four ") &
  check "SSE is not held back" says "data:four " out -N -m 2 "$OUT/v1/stream/chat?offset=now&live=sse"
  offset=$(curl -fsSI "$A/v1/stream/chat" | tr -d '\r' | sed -n 's/^stream-next-offset: //ip')
  (sleep 0.5; post "$C/v1/stream/chat" "five ") &
  check "a long-poll gets what comes" says "five " out "$OUT/v1/stream/chat?offset=$offset&live=long-poll"
  check "pages of operators stay inside" says 404 out -o /dev/null -w '%{http_code}' "$OUT/metrics"
  check "nodes are not listed outside" says 404 out -o /dev/null -w '%{http_code}' "$OUT/v1/admin/nodes"

  # A node is killed while clients append as producers, which retry: none of them fails, and nothing is lost or doubled.
  numbers() { "$THALWEG_BIN" stream append "numbers/$1" --create --lines --producer "p$1" --server "$OUT" --ca "$DIR/leaf.pem"; }
  slowly() { for n in $(seq 150); do echo "$n"; sleep 0.05; done; }
  APPENDING=
  for n in 1 2 3; do slowly | numbers "$n" >"$WORK/numbers.$n" 2>&1 & APPENDING+=" $!"; done
  sleep 2
  killed=$("$THALWEG_BIN" node owner numbers/1 --server "$A" 2>/dev/null)
  kill -9 "$(cat "$WORK/nodes/$killed.pid")"
  appended() { local pid; for pid in $APPENDING; do wait "$pid" || { cat "$WORK"/numbers.?; return 1; }; done; }
  check "appends go on while a node is killed behind nginx" appended
  kept() { local n; for n in 1 2 3; do "$THALWEG_BIN" stream read "numbers/$n" --server "$OUT" --ca "$DIR/leaf.pem" | cmp - <(seq 150) || return 1; done; }
  check "nothing is lost, and nothing doubled" kept
  fine() { local n; for n in $(seq 30); do [ "$(out -o /dev/null -w '%{http_code}' "$OUT/v1/stream/chat?offset=-1")" = 200 ] || return 1; done; }
  check "no read fails beside a dead node" fine
  check "no POST was sent twice" bash -c "! grep '^POST' '$DIR/access.log' | grep -E ' (200|201|204|4..|503), '"
  kill $NGINX_PID; wait $NGINX_PID 2>/dev/null; NGINX_PID=
else
  skip "nodes behind nginx (needs nginx and openssl)"
fi

# ---- what the bucket has, beside nodes that write

# Those that live.
case ${killed:-} in node-1) A=$B B=$C ;; node-2) B=$C ;; node-3) C=$B ;; esac
for n in $(seq 8); do put "$A/v1/stream/bulk/$n"; done
python3 -c 'import sys; sys.stdout.write("0123456789abcdef" * 8192)' >"$WORK/block"
pour() { while [ ! -e "$WORK/enough" ]; do for n in $(seq 8); do curl -sS -o /dev/null -X POST "$A/v1/stream/bulk/$n" -H 'content-type: text/plain' --data-binary @"$WORK/block" || :; done; done; }
pour & POURING=$!
sleep 3
ls_json() { "$THALWEG_BIN" store ls --json --store "$STORE"; }
check "store ls counts the units of nodes" says 6 bash -c "'$THALWEG_BIN' store ls --json --store '$STORE' | python3 -c 'import json, sys; print(len(json.load(sys.stdin)[\"units\"]))'"
check "each has an owner that lives" says True field 'all(unit["owner"] and unit["owner"]["live"] for unit in said["units"])' < <(ls_json)
check "and streams, counted" says True field 'sum(unit["streams"] for unit in said["units"]) >= 8' < <(ls_json)
whole_again_and_again() { local n; for n in $(seq "${CHECKS:-8}"); do "$THALWEG_BIN" store check --store "$STORE" >"$WORK/checked" 2>&1 || { cat "$WORK/checked"; return 1; }; done; }
check "store check finds nothing wrong while objects are written, merged and removed" whole_again_and_again
touch "$WORK/enough"; wait $POURING
check "it has read objects" says True field 'sum(unit["objects"] for unit in said["units"]) > 0' < <("$THALWEG_BIN" store check --json --store "$STORE")

# ---- streams of a data folder are moved to nodes, and back

start_server || { fail "a server with a data folder starts"; finish deploy; }
for n in 1 2 3; do put "$BASE/v1/stream/old/$n"; post "$BASE/v1/stream/old/$n" "content of $n"; done
curl -fsS -o /dev/null -X PUT "$BASE/v1/stream/old/json" -H 'content-type: application/json' -d '[{"a":1},{"a":2}]'
names() { "$THALWEG_BIN" stream ls --server "$1" | grep '^old/'; }
migrate() { names "$1" | THALWEG=$THALWEG_BIN "$ROOT/deploy/migrate.sh" "$1" "$2"; }
check "deploy/migrate.sh copies streams of a folder to nodes" says "copied  old/json" migrate "$BASE" "$B"
post "$BASE/v1/stream/old/1" ", and more"
check "run again, it adds what came meanwhile" migrate "$BASE" "$C"
check "nodes have all of it" says "content of 1, and more" curl -fsS "$B/v1/stream/old/1?offset=-1"
stop_server
rm -rf "$WORK/data"
start_server
check "it copies them back to a folder" migrate "$B" "$BASE"
check "the folder has all of it" says '[{"a":1},{"a":2}]' curl -fsS "$BASE/v1/stream/old/json?offset=-1"
stop_server

# ---- a prefix without nodes, and with damage

check "the nodes stop in order" stop_nodes
whole() { "$THALWEG_BIN" store check --store "$STORE" >"$WORK/checked" || { cat "$WORK/checked"; return 1; }; }
check "store ls says that no node lives" says "False" field 'any(node["live"] for node in said["nodes"])' < <(ls_json)
check "store check reads it without nodes" whole
bucket=$WORK/nodes/bucket
cp -r "$bucket" "$WORK/kept"
# damage CLAIM WORDS: store check says these words, and fails; then the bucket is as it was.
damage() { check "$1" refused "$2" "$THALWEG_BIN" store check --store "$STORE"; rm -rf "$bucket"; cp -r "$WORK/kept" "$bucket"; }
# flip FILE [AT]: one bit of the byte there, or in the middle.
flip() {
  python3 - "$@" <<'PY'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(0, 2); at = int(sys.argv[2]) if len(sys.argv) > 2 else f.tell() // 2; f.seek(at); byte = f.read(1); f.seek(at); f.write(bytes([byte[0] ^ 1]))
PY
}
object=$(find "$bucket/d" -type f -size +20k -printf '%P\n' | head -1)
[ -n "$object" ] || fail "there is an object to damage"
flip "$bucket/d/$object"; damage "a changed byte of an object is found, with its key" "${object%%/*}: d/$object"
rm "$bucket/d/$object"; damage "so is an object that is gone" "d/$object"
unit=${object%%/*}
flip "$bucket/m/$unit"; damage "and a root that is damaged" "m/$unit"
rm "$bucket/m/$unit"; damage "and a unit without its root" "no root"
record=$(find "$bucket/j" -type f -size +0 -printf '%P\n' | sort | tail -1)
# In its head: what its batch has may be settled, and not be needed.
flip "$bucket/j/$record" 30; damage "and a changed byte of a journal" "j/$record"
truncate -s 40 "$bucket/j/$record"; damage "and an object of a journal that is cut" "j/$record"
head -c 3000 /dev/urandom >"$bucket/d/$unit/0000000100ffffff"
check "an object that no root names is an orphan, and no damage" says 3000 field 'sum(unit["orphanBytes"] for unit in said["units"] if unit["orphans"])' < <(ls_json)
check "store check passes over it" whole
check "a folder that is not there is told, and not made" refused "no such folder" "$THALWEG_BIN" store check --store "file://$WORK/nothing"
mkdir "$WORK/nothing"
check "a prefix without data is told" refused "holds no data" "$THALWEG_BIN" store check --store "file://$WORK/nothing"

# ---- the command line of the Kubernetes manifest

if python3 -c 'import yaml' 2>/dev/null; then
  kube() { NODE_NAME=$1 POD_IP=127.0.0.1 python3 "$ROOT/tests/deploy/kubernetes.py" "$ROOT/deploy/kubernetes.yaml" "$2"; }
  check "the parts of the manifest fit together" kube pod-a check
  TOKEN=$("$THALWEG_BIN" token new --name app --admin '*' 2>&1 >"$WORK/tokens.toml" | grep -o 'tw1\.[A-Za-z0-9._-]*' | head -1)
  # Only what a pod has of its own is another one here: addresses, folders, and a folder for the bucket.
  pod() {
    local port args; port=$(free_port)
    mapfile -t args < <(kube "$1" args | sed -e "s#0.0.0.0:4437#127.0.0.1:$port#" -e "s#127.0.0.1:4437#127.0.0.1:$port#" -e "s#=/data#=$WORK/$1#" \
      -e "s#s3://change-me/thalweg#file://$WORK/kube-bucket#" -e "s#/etc/thalweg/tokens.toml#$WORK/tokens.toml#")
    "$THALWEG_BIN" "${args[@]}" >"$WORK/$1.log" 2>&1 & KUBE_PIDS+=" $!"
    POD=http://127.0.0.1:$port
    for _ in $(seq 200); do [ "$(curl -s -o /dev/null -w '%{http_code}' "$POD/health")" = 200 ] && return 0; sleep 0.1; done
    tail -3 "$WORK/$1.log"; return 1
  }
  check "a pod starts, and its probes are answered" pod thalweg-7c9f6d5b4-abcde
  FIRST=$POD
  check "a second one starts beside it" pod thalweg-7c9f6d5b4-fghij
  as() { curl -fsS -H "authorization: Bearer $TOKEN" --retry 8 "$@"; }
  as -o /dev/null -X PUT "$FIRST/v1/stream/pods" -H 'content-type: text/plain' -d "from one"
  check "one reads what the other was sent" says "from one" as "$POD/v1/stream/pods?offset=-1"
  check "without a token it is refused" says 401 curl -s -o /dev/null -w '%{http_code}' "$POD/v1/stream/pods"
  read -r first _ <<<"$KUBE_PIDS"
  began=$SECONDS; kill -TERM "$first"; wait "$first"; code=$?
  check "a pod that is stopped ends with code 0, long before its grace period" test $code = 0 -a $((SECONDS - began)) -lt 30
  check "and the other one has its streams at once" says "from one" as -m 3 "$POD/v1/stream/pods?offset=-1"
else
  skip "the Kubernetes manifest (needs python3-yaml)"
fi
finish deploy
