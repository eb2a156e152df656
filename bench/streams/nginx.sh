#!/usr/bin/env bash
# Live readers behind nginx with request collapsing: number and cost of the requests that reach the server.
#   READERS="10 1000 10000" SECS=20 nginx.sh
# nginx (Debian's package) runs as a process of its own in a temporary folder. Readers long-poll through it and echo offset and
# cursor as the protocol has it; the writer appends once a second to the server itself. nginx looks every 500 ms whether the
# answer that others wait for has come, so delays up to that are its own.
. "$(dirname "$0")/lib.sh"
READERS=${READERS:-10 1000 10000} SECS=${SECS:-20} RATE=${RATE:-1}
PATH=$PATH:/usr/sbin
need nginx; need curl; build
mkdir -p "$SCRATCH"; WORK=$(mktemp -d "$SCRATCH/nginx-XXXXXX")
PROXY_PID=
trap '[ -n "$PROXY_PID" ] && kill "$PROXY_PID"; stop_server KILL; rm -rf "$WORK"' EXIT
machine
serve thalweg:durable "$WORK/data" --allow-host '*' --max-connections 15000 || exit 1
PORT=$(free_port)
cat >"$WORK/nginx.conf" <<EOF
daemon off;
master_process off;
pid $WORK/nginx.pid;
error_log $WORK/nginx.log warn;
worker_rlimit_nofile $(ulimit -n);
events { worker_connections $(($(ulimit -n) - 200)); }
http {
  access_log off;
  client_body_temp_path $WORK/body; proxy_temp_path $WORK/proxy; fastcgi_temp_path $WORK/f; uwsgi_temp_path $WORK/u; scgi_temp_path $WORK/s;
  proxy_cache_path $WORK/cache keys_zone=streams:10m max_size=100m;
  keepalive_timeout 300s;
  keepalive_requests 1000000;
  upstream origin { server $ADDRESS; keepalive 64; }
  server {
    listen 127.0.0.1:$PORT backlog=4096;
    location / {
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_read_timeout 120s;
      proxy_cache streams;
      proxy_cache_key \$uri?\$args;
      # One request for each key at a time; all others wait for its answer.
      proxy_cache_lock on;
      proxy_cache_lock_age 120s;
      proxy_cache_lock_timeout 120s;
      # nginx counts the uses of a key in ten bits: with the default of 1, every 1,024th waiting reader would go past the lock.
      proxy_cache_min_uses 0;
    }
  }
}
EOF
nginx -p "$WORK" -c "$WORK/nginx.conf" -e "$WORK/nginx.log" &
PROXY_PID=$!
until curl -fs "http://127.0.0.1:$PORT/health" >/dev/null; do kill -0 $PROXY_PID 2>/dev/null || { cat "$WORK/nginx.log"; exit 1; }; sleep 0.1; done
# The server prepares its journal when it starts.
sleep 3
# $1: the process's CPU time in microseconds.
spent() { SERVER_PID=$1 cpu_us; }
echo "| readers | deliveries | missing, twice | requests to the server per append, the append not counted | server CPU per append (µs) | nginx CPU per delivery (µs) | p50 / p99 (ms) |"
echo "|---|---|---|---|---|---|---|"
ALL=
for n in $READERS; do
  before=$(metric requests_total) nginx_before=$(spent $PROXY_PID)
  OUT=$("$LOADGEN" --server 127.0.0.1:$PORT --server-pid "$SERVER_PID" fanout --live long-poll --readers "$n" --stream "live$n" --origin "$ADDRESS" --rate "$RATE" --seconds "$SECS" --warm 0 | tail -1)
  [ -n "$OUT" ] || { tail -3 "$WORK/nginx.log"; exit 1; }
  after=$(metric requests_total) nginx_after=$(spent $PROXY_PID)
  # Not counted: the appends, the two requests that prepare the stream, and one request for the metrics.
  requests=$(awk -v d=$((after - before - 3)) -v n="$(field events)" 'BEGIN {printf "%.2f", d / n - 1}')
  ALL+="$requests $(field event_cpu_us)"$'\n'
  echo "| $n | $(field deliveries) | $(field missing), $(field dup) | $requests | $(field event_cpu_us) | $(awk -v a="$nginx_before" -v b="$nginx_after" -v n="$(field deliveries)" 'BEGIN {printf "%.1f", n ? (b - a) / n : 0}') | $(awk -v a="$(field p50_us)" -v b="$(field p99_us)" 'BEGIN {printf "%.1f / %.1f", a / 1000, b / 1000}') |"
done
echo
printf '%s' "$ALL" | awk '{if ($1 > most) most = $1; if (!low || $2 < low) low = $2; if ($2 > high) high = $2}
  END {printf "At most %.2f requests per append (target: 2): %s. The dearest append costs the server %.2f times the cheapest.\n", most, most <= 2 ? "holds" : "does not hold", high / low}'
