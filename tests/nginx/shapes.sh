# deploy/nginx-shapes.conf in front of the binary and a Postgres. Sourced by run.sh, after the streams.
. "$ROOT/tests/pg.sh"

shapes_behind_nginx() {
  need_pg 15 || { skip "shapes behind nginx (needs Postgres)"; return; }
  kill "$NGINX_PID" 2>/dev/null; wait "$NGINX_PID" 2>/dev/null
  stop_server
  pg_start 15 || { fail "Postgres starts"; return; }
  sql() { as_pg "$(pg_bin 15)/psql" -qAt -d "$PG_URL" -c "$1"; }
  sql "CREATE TABLE items (id int PRIMARY KEY, title text NOT NULL); INSERT INTO items SELECT n, 'item ' || n FROM generate_series(1, 2000) n"
  export THALWEG_DATABASE_URL=$PG_URL THALWEG_SHAPE_SECRET=s3cret
  start_server --shape-long-poll-timeout 3s --allow-host localhost || { fail "the server of shapes starts"; return; }
  for _ in $(seq 100); do [ "$(command curl -s -o /dev/null -w '%{http_code}' "$BASE/v1/health")" = 200 ] && break; sleep 0.1; done

  sed -e "s#127.0.0.1:4437#${BASE#http://}#" -e "s#listen 443#listen 127.0.0.1:$PORT#" -e "s#/var/cache/nginx/shapes#$DIR/cache/shapes#" \
    -e "s#/etc/ssl/private/shapes.example.org.key#$DIR/leaf.key#" -e "s#/etc/ssl/shapes.example.org.pem#$DIR/leaf.pem#" \
    "$ROOT/deploy/nginx-shapes.conf" >"$DIR/site.conf"
  : >"$DIR/error.log"
  check "nginx takes the file of the shapes" nginx -t -q -e "$DIR/error.log" -p "$DIR" -c "$DIR/nginx.conf"
  nginx -e "$DIR/error.log" -p "$DIR" -c "$DIR/nginx.conf" &
  NGINX_PID=$!
  for _ in $(seq 100); do curl -f "$OUT/v1/health" >/dev/null 2>&1 && break; sleep 0.1; done

  local q="table=items&secret=s3cret"
  check "health of the shapes is told outside" says '"status":"active"' curl "$OUT/v1/health"
  check "without the secret there is nothing" says "401" curl -o /dev/null -w '%{http_code}' "$OUT/v1/shape?table=items&offset=-1"
  check "rows come through" says '"title":"item 2000"' curl "$OUT/v1/shape?$q&offset=-1"
  check "the first rows are kept" says "x-cache: HIT" curl -D - -o /dev/null "$OUT/v1/shape?$q&offset=-1"
  check "and are for every origin" says "access-control-allow-origin: *" curl -D - -o /dev/null -H 'origin: https://one.example' "$OUT/v1/shape?$q&offset=-1"
  check "large answers are compressed" says "content-encoding: gzip" curl -D - -o /dev/null -H 'accept-encoding: gzip' "$OUT/v1/shape?$q&offset=-1"
  check "a subset is made for each who asks" lacks "x-cache: HIT" bash -c "$(declare -f curl); $(declare -p PORT DIR OUT); for n in 1 2; do curl -D - -o /dev/null '$OUT/v1/shape?$q&offset=now&subset__limit=1&subset__order_by=id'; done"
  check "what is for operators stays inside" says "404" curl -o /dev/null -w '%{http_code}' "$OUT/v1/admin/shapes"
  local handle; handle=$(curl -D - -o /dev/null "$OUT/v1/shape?$q&offset=-1" | tr -d '\r' | sed -n 's/^electric-handle: //p')
  (sleep 0.5; sql "INSERT INTO items VALUES (0, 'by SSE')") &
  timeout 4 bash -c "$(declare -f curl); $(declare -p PORT DIR OUT); curl -N '$OUT/v1/shape?$q&offset=0_inf&handle=$handle&live=true&live_sse=true'" >"$WORK/shape-sse" 2>/dev/null
  wait $!
  check "events come while the answer goes on" says "by SSE" cat "$WORK/shape-sse"

  PSQL=$(pg_bin 15)/psql PG_URL=$PG_URL timeout 120 node "$ROOT/tests/nginx/shapes.mjs" "$BASE" "$OUT" "$DIR/ca.pem" s3cret >"$WORK/shapes.out" 2>&1 ||
    fail "the clients end well: $(tail -12 "$WORK/shapes.out")"
  while IFS= read -r line; do
    case $line in "ok "*) pass "${line#ok }" ;; "FAILED "*) fail "${line#FAILED }" ;; esac
  done <"$WORK/shapes.out"
  [ "$(grep -c '^ok\|^FAILED' "$WORK/shapes.out")" = 5 ] || fail "all checks of the clients ran"
  check "nginx has nothing to complain about with shapes" lacks "[" cat "$DIR/error.log"
}
