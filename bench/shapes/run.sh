#!/usr/bin/env bash
# The eight loads of the Electric fleet, 850 clients at once, and memory, against targets; yardsticks of the same sitting around them.
#   CASES="w1 w1d w1e w2 w3 w4 w5 w6 w7 w7s w8 memory disk" bench/shapes/run.sh
#   CASES=nginx AXIS_NGINX="100 1000 10000" bench/shapes/run.sh   live clients behind nginx; only if it is asked for
#   SHAPES_SERVER='…' bench/shapes/run.sh   another server of the same API, see lib.sh
. "$(dirname "$0")/lib.sh"
CASES=${CASES:-yard w1 w1d w1e w2 w3 w4 w5 w6 w7 w7s w8 memory disk}
# Numbers of shapes, rows or clients of each load; QUICK=1 takes fewer.
AXIS_W1=${AXIS_W1:-50 450 850} AXIS_W1E=${AXIS_W1E:-50 850} AXIS_W2=${AXIS_W2:-100000 1000000} AXIS_W3=${AXIS_W3:-100 1000 10000}
AXIS_W4=${AXIS_W4:-5 100 400 1000} AXIS_W5=${AXIS_W5:-50 250 750} AXIS_W6=${AXIS_W6:-100 500 1500} AXIS_W7=${AXIS_W7:-10 1000 10000}
AXIS_W8=${AXIS_W8:-100 1000 10000} AXIS_NGINX=${AXIS_NGINX:-100 1000 10000} AXIS_MEMORY=${AXIS_MEMORY:-20000} AXIS_DISK=${AXIS_DISK:-750} IDLE=${IDLE:-5000}
TRANSACTIONS=${TRANSACTIONS:-200} BACKLOG=${BACKLOG:-200000} WRITES=${WRITES:-30}
[ -n "${QUICK:-}" ] && { AXIS_W1="50 850" AXIS_W1E=850 AXIS_W2=100000 AXIS_W3="100 1000" AXIS_W4="5 1000" AXIS_W5="50 750" AXIS_W6="100 1500" AXIS_W7="10 1000" AXIS_W8="100 1000" TRANSACTIONS=60 BACKLOG=100000 WRITES=10; }

if [ -n "${SHAPES_SERVER:-}" ]; then
  [ -n "${NO_BUILD:-}" ] || (cd "$ROOT" && cargo build --release --locked -p thalweg-loadgen) || exit 1
else
  build
fi
mkdir -p "$SCRATCH"; WORK=$(mktemp -d "$SCRATCH/shapes-XXXXXX")
trap '[ -n "${FRONT_PID:-}" ] && kill "$FRONT_PID"; stop_server KILL; rm -rf "$WORK"' EXIT
start_postgres

EQUAL="name = 'name-{i}'" ILIKE="name ILIKE 'name-{i}x%'" ALL="level > -{i}"
# Rows of one transaction: `rows NAME COUNT` as one statement.
rows() { echo "INSERT INTO items (name, level, note) SELECT $1, 1, repeat('y', 64) FROM generate_series(1, $2)"; }

# ---- the table

TABLE= NO=0
# row CASE VALUE TARGET [holds|no|-]
row() {
  [ "${4:-}" = no ] && NO=$((NO + 1))
  local line="| $1 | $2 | $3 | ${4:--} |"
  TABLE+=$line$'\n'; echo "$line"
}
# holds A OP B: `holds` or `no`; OP is < or >.
holds() { awk -v a="$1" -v o="$2" -v b="$3" 'BEGIN {print (a != "" && (o == "<" ? a <= b : a >= b)) ? "holds" : "no"}'; }
ms() { awk -v us="${1:-0}" 'BEGIN {printf us < 9950 ? "%.2f" : "%.0f", us / 1000}'; }
mb() { awk -v b="${1:-0}" 'BEGIN {printf "%.0f", b / 1048576}'; }
k() { awk -v n="${1:-0}" 'BEGIN {printf n < 9950 ? "%.0f" : "%.0fk", n < 9950 ? n : n / 1000}'; }
ratio() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN {printf "%.2f", (b > 0 ? a / b : 0)}'; }
three() { echo "$(ms "$(field "$1p50_us")") / $(ms "$(field "$1p95_us")") / $(ms "$(field "$1p99_us")") ms"; }
server_cost() { echo "CPU $(field cpu_us) µs $1, client $(field client_cores) cores, RSS $(mb "$(field peak)") MB"; }
failed() { row "$1" "failed: $(head -1 "$WORK/load.err")" "${2:--}" no; }

# Registers shapes first.. of a predicate, 16 at a time.
register() { measure --connections 16 shapes fetch ${1:+--where "$1"} --from "$2" --shapes "$3"; }

# ---- the cases

# The yardstick of the moment: Y_TXN, Y_ROWS (walsender), Y_ONE and Y_FIFTY.
walsender() {
  local began ended end transactions=$1 rows=$2
  sql "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'yard'" >/dev/null
  sql "DROP PUBLICATION IF EXISTS yard; CREATE PUBLICATION yard FOR ALL TABLES" 2>/dev/null
  sql "SELECT pg_create_logical_replication_slot('yard', 'pgoutput')" >/dev/null
  OUT=$("$LOADGEN" shapes yard-write --pg "$PG_URL" --transactions "$transactions" --rows "$rows" --sql "$(rows "'yard-' || i" "$rows")" | tail -1)
  WRITER=$(field rows_per_s) end=$(sed -nE 's/.* end=([0-9A-F/]+).*/\1/p' <<<"$OUT")
  began=$(date +%s.%N)
  pg_recvlogical -d "$PG_URL" --slot yard --start --endpos "$end" -o proto_version=1 -o publication_names=yard -s 1 -f /dev/null
  ended=$(date +%s.%N)
  sql "SELECT pg_drop_replication_slot('yard')" >/dev/null; sql "DROP PUBLICATION yard"
  awk -v a="$began" -v b="$ended" -v n=$((transactions * rows)) 'BEGIN {printf "%.0f", n / (b - a)}' >"$WORK/walsender"
  WALSENDER=$(cat "$WORK/walsender")
}

yard() {
  stop_server; forget_server; items 500
  OUT=$("$LOADGEN" shapes yard-latency --pg "$PG_URL" --transactions 300 --pause 5 --sql "$(rows "'yard'" 1)" | tail -1)
  row "yardstick: commit -> pgoutput COMMIT at a plain client" "$(three "")" - -
  row "yardstick: insert, acknowledged" "$(ms "$(field ack_p50_us)") ms" - -
  walsender "$BACKLOG" 1
  row "yardstick: walsender (pg_recvlogical), one-row transactions; writer" "$(k "$WALSENDER") / s; $(k "$WRITER") / s" - -
  walsender 1 "$BACKLOG"
  row "yardstick: walsender, one transaction of $BACKLOG rows; writer" "$(k "$WALSENDER") rows/s; $(k "$WRITER") rows/s" - -
}

w1() {
  local n verdict
  for n in $AXIS_W1; do
    fresh 500 || return
    measure --connections "$n" shapes fetch --clients "$n" --rows 500 || { failed "w1 $n clients"; continue; }
    verdict=- target=-
    [ "$n" = 850 ] && { target="all in 0.3 s, none refused" verdict=$(holds "$(field seconds)" "<" 0.3); [ "$(field refused)" = 0 ] || verdict=no; }
    row "w1 one 500-row shape, $n clients at once" "$(three ""), all in $(field seconds) s, $(field refused) refused; $(server_cost "each")" "$target" "$verdict"
  done
}

w1d() {
  local n copies per
  for n in $AXIS_W1; do
    fresh 500 || return
    OUT=$("$LOADGEN" --connections 8 shapes yard-copy --pg "$PG_URL" --runs "$n" --copy "COPY (SELECT * FROM items WHERE level > -{i}) TO STDOUT" | tail -1)
    copies=$(field per_s)
    # As many at once as there are shapes: none may be refused.
    measure --connections "$n" shapes fetch --where "$ALL" --shapes "$n" --rows 500 || { failed "w1d $n shapes"; continue; }
    per=$(ratio "$(field per_s)" "$copies")
    row "w1d $n distinct shapes at once" "$(three ""), $(field per_s) / s, $per of eight connections' COPY ($copies / s), $(field refused) refused; $(server_cost "each")" ">= 0.5 of COPY" "$(holds "$per" ">" 0.5)"
  done
}

# Shapes of one value of a column each, 500 rows that no other has, scattered over the table.
w1e() {
  local n what runs copies per
  for n in $AXIS_W1E; do
    for what in "no index" "an index"; do
      fresh 0 || return
      sql "INSERT INTO items (name, level, note) SELECT 'group-' || i % $n, 1, repeat('n', 64) FROM generate_series(0, $n * 500 - 1) i"
      [ "$what" = "no index" ] && sql "DROP INDEX items_name_idx"
      sql "VACUUM ANALYZE items"; sql "CHECKPOINT"; idle
      runs=$n; [ "$what" = "no index" ] && [ "$n" -gt 100 ] && runs=100
      OUT=$("$LOADGEN" --connections 8 shapes yard-copy --pg "$PG_URL" --runs "$runs" --copy "COPY (SELECT * FROM items WHERE name = 'group-{i}') TO STDOUT" | tail -1)
      copies=$(field per_s)
      measure --connections "$n" shapes fetch --where "name = 'group-{i}'" --shapes "$n" --rows 500 || { failed "w1e $n shapes, $what"; continue; }
      per=$(ratio "$(field per_s)" "$copies")
      row "w1e $n shapes of 500 rows each at once, $what" "$(three ""), $(field per_s) / s, $per of eight connections' COPY ($copies / s), $(field refused) refused; $(server_cost "each")" ">= 1.5 of COPY" "$(holds "$per" ">" 1.5)"
    done
  done
}

w2() {
  local n cold warm first= flat target
  for n in $AXIS_W2; do
    fresh "$n" || return
    OUT=$("$LOADGEN" --connections 1 shapes yard-copy --pg "$PG_URL" --copy "COPY items TO STDOUT" | tail -1)
    row "yardstick: COPY of $n rows" "$(field seconds) s, $(k "$(field rows_per_s)") rows/s" - -
    for temperature in cold warm; do
      measure --connections 1 shapes fetch --rows "$n" || { failed "w2 $n $temperature"; continue 2; }
      target=500000; [ $temperature = warm ] && target=1500000
      row "w2 $n rows, $temperature" "$(field seconds) s, $(k "$(field rows_per_s)") rows/s, $(field mb_per_s) MB/s; $(server_cost "altogether")" ">= $(k $target) rows/s" "$(holds "$(field rows_per_s)" ">" $target)"
    done
    [ -z "$first" ] && first=$(mb "$(field peak)")
  done
  flat=$(($(mb "$(field peak)") - first))
  row "w2 memory: growth of the peak from the smallest to the largest" "$flat MB" "flat: <= 32 MB" "$(holds $flat "<" 32)"
}

# w3 and w8's latency: one client of one shape among many, and a write to it.
one_of_many() {
  local what=$1 predicate=$2 name=$3 target=$4 n
  for n in $5; do
    fresh 0 || return
    register "$predicate" 0 "$n" || { failed "$what, $n shapes"; continue; }
    row "$what: making $n shapes" "$(field per_s) / s; $(server_cost "each")" - -
    measure --connections 1 shapes follow --where "$predicate" --from $((n / 2)) --pg "$PG_URL" --transactions "$TRANSACTIONS" --sql "$(rows "'${name//\{i\}/$((n / 2))}'" 1)" ||
      { failed "$what, $n shapes"; continue; }
    row "$what, one of $n shapes" "$(three each_); $(server_cost "per write")" "p50 <= $target ms, flat" "$(holds "$(field each_p50_us)" "<" "$(awk -v t="$target" 'BEGIN {print t * 1000}')")"
  done
}
w3() {
  one_of_many "w3 =" "$EQUAL" "name-{i}" 0.2 "$AXIS_W3"
  one_of_many "w3 ILIKE" "$ILIKE" "Name-{i}xyz" 0.3 "$AXIS_W3"
}

w4() {
  local n target verdict
  for n in $AXIS_W4; do
    fresh 0 || return
    register "" 0 1 || { failed "w4 $n clients"; continue; }
    measure --connections "$n" shapes follow --pg "$PG_URL" --operations 50 --transactions "$WRITES" --sql "$(rows "'w4'" 50)" || { failed "w4 $n clients"; continue; }
    target=- verdict=-
    [ "$n" = 1000 ] && target="last p50 <= 50 ms" verdict=$(holds "$(field last_p50_us)" "<" 50000)
    row "w4 50 rows to $n clients" "each $(three each_), last $(three last_); CPU $(field cpu_us_each) µs per delivery, client $(field client_cores) cores, RSS $(mb "$(field peak)") MB" "$target" "$verdict"
  done
}

# overlapping WHAT SHAPES CLIENTS MS MB: shapes that all have all rows.
overlapping() {
  local what=$1 n=$2 clients=$3 limit=${4:-} memory=${5:-} verdict=- target=-
  fresh 0 || return
  register "$ALL" 0 "$n" || { failed "$what"; return; }
  measure --connections "$clients" shapes follow --where "$ALL" --from $((n - clients)) --shapes "$clients" --pg "$PG_URL" --operations 50 --transactions "$WRITES" --sql "$(rows "'w5'" 50)" || { failed "$what"; return; }
  [ -n "$limit" ] && { target="last p50 <= $limit ms, <= $memory MB"; verdict=$(holds "$(field last_p50_us)" "<" $((limit * 1000))); [ "$(holds "$(mb "$(field peak)")" "<" "$memory")" = holds ] || verdict=no; }
  row "$what" "each $(three each_), last $(three last_); $(server_cost "per transaction")" "$target" "$verdict"
}
w5() { local n; for n in $AXIS_W5; do overlapping "w5 50 rows to $n overlapping shapes with a client each" "$n" "$n" $([ "$n" = 750 ] && echo 60 100); done; }
w6() { local n; for n in $AXIS_W6; do overlapping "w6 50 rows to $n overlapping shapes, one client" "$n" 1 $([ "$n" = 1500 ] && echo 30 100); done; }

# throughput WHAT PREDICATE NAME SHAPES: backlogs of one-row and 50-row transactions that hit one shape each, or none.
throughput() {
  local what=$1 predicate=$2 name=$3 n=$4 per rows target hit
  for rows in 1 50; do
    # The yardstick's rows would be scanned for each shape.
    stop_server; forget_server; items 0
    walsender $((BACKLOG / rows)) $rows
    fresh 0 || return
    register "$predicate" 0 "$n" || { failed "$what, $n shapes"; return; }
    for hit in "each hits one" "none hit"; do
      local value="'${name//\{i\}/\' || (i % $n) || \'}'" target=0.8
      [ "$hit" = "none hit" ] && value="'other-' || i" target=0.9
      measure shapes drain --pg "$PG_URL" --transactions $((BACKLOG / rows)) --rows $rows --sql "$(rows "$value" $rows)" ||
        { failed "$what, $n shapes, $hit"; continue; }
      per=$(ratio "$(field rows_per_s)" "$WALSENDER")
      row "$what, $n shapes, $rows-row transactions, $hit" "$(k "$(field per_s)") transactions/s, $(k "$(field rows_per_s)") rows/s, $per of walsender ($(k "$WALSENDER") rows/s); walsender $(field walsender_cores) cores; $(server_cost "per row")" ">= $target of walsender, flat" "$(holds "$per" ">" $target)"
    done
  done
}
w7() { local n; for n in $AXIS_W7; do throughput "w7 =" "$EQUAL" "name-{i}" "$n"; done; }
w8() { local n; for n in $AXIS_W8; do throughput "w8 ILIKE" "$ILIKE" "Name-{i}xyz" "$n"; done; }
# Shapes with a subquery each, that selects one value: transactions on their table, that hit one or none, and on the inner one.
# BACKLOG_SUBQUERY: transactions of each.
w7s() {
  local n i what predicate="name IN (SELECT name FROM owners WHERE owner = {i})" backlog=${BACKLOG_SUBQUERY:-20000}
  for n in $AXIS_W7; do
    stop_server
    sql "DROP TABLE IF EXISTS owners" 2>/dev/null
    sql "CREATE TABLE owners (name text PRIMARY KEY, owner int NOT NULL); ALTER TABLE owners REPLICA IDENTITY FULL"
    sql "INSERT INTO owners SELECT 'name-' || i, i FROM generate_series(0, $n - 1) i"; sql "VACUUM ANALYZE owners"
    fresh 0 || return
    register "$predicate" 0 "$n" || { failed "w7s, $n shapes"; return; }
    row "w7s making $n shapes with a subquery each" "$(field per_s) / s; $(server_cost "each")" - -
    for what in "each hits one|$(rows "'name-' || (i % $n)" 1)" "none hit|$(rows "'other-' || i" 1)" "on the inner table, none hit|INSERT INTO owners VALUES ('none-' || i, -1)"; do
      idle
      measure shapes drain --pg "$PG_URL" --transactions "$backlog" --rows 1 --sql "${what#*|}" || { failed "w7s, $n shapes, ${what%%|*}"; continue; }
      row "w7s, $n shapes, ${what%%|*}" "$(k "$(field per_s)") transactions/s; $(server_cost "per transaction")" "flat" -
    done
  done
}
# The same with one shape of the whole table, for a server that has no predicates.
w7all() { throughput "w7 whole table" "" "name-{i}" 1; }

memory() {
  local before after n each
  fresh 0 || return
  register "$EQUAL" 0 1000 || { failed "memory per shape"; return; }
  sleep 12; before=$(rss_kb)
  for n in $AXIS_MEMORY; do
    register "$EQUAL" 1000 "$n" || { failed "memory per shape"; return; }
    local per_s; per_s=$(field per_s)
    sleep 12; after=$(rss_kb); each=$(((after - before) * 1024 / n))
    row "memory per registered shape, of $n" "$each B ($per_s made / s)" "<= 700 B" "$(holds $each "<" 700)"
  done
  fresh 0 || return
  register "" 0 1 || { failed "memory per idle live client"; return; }
  measure --connections "$IDLE" shapes idle --settle 12 || { failed "memory per idle live client"; return; }
  row "memory per idle live client, of $IDLE" "$(field bytes_each) B" "<= 3072 B" "$(holds "$(field bytes_each)" "<" 3072)"
}

# Bytes of objects, which hold settled data; the journal's segments are reused.
settled() { du -sb --apparent-size "$WORK/data/shapes/objects" | cut -f1; }
metric() { curl -s "$BASE/metrics" | sed -n "s/^thalweg_$1 //p"; }

# Disk space of overlapping shapes: their rows, changes that all of them share, merged rows, and the rest after most are dropped.
disk() {
  local n=$AXIS_DISK rows=1000 rounds=${ROUNDS:-5} i made after merged dropped held
  fresh $rows --shape-delete on --settle-after 1s --purge-after 5s --shape-log-keep 40s --shape-compact-bytes 256KiB || return
  register "$ALL" 0 "$n" || { failed "disk of $n overlapping shapes"; return; }
  sleep 12; made=$(settled)
  for i in $(seq $rounds); do sql "UPDATE items SET note = repeat(md5(random()::text), 2)"; done
  # The known lag is a second old.
  sleep 3; for i in $(seq 300); do [ "$(metric shape_lag_bytes)" = 0 ] && break; sleep 0.1; done
  held=$(metric shape_log_held_bytes)
  for i in $(seq 300); do [ "$(metric shape_compactions_total)" -ge "$n" ] && break; sleep 1; done
  merged=$(metric shape_compactions_total)
  for i in $(seq 120); do [ "$(metric shape_log_held_bytes)" -lt $((2 << 20)) ] && break; sleep 1; done
  sleep 20; after=$(settled)
  for i in $(seq 0 $((n - n / 15 - 1))); do
    curl -s -o /dev/null -X DELETE -G "$BASE/v1/shape" --data-urlencode table=items --data-urlencode "where=level > -$i"
  done
  sleep 25; dropped=$(settled)
  row "disk, $n overlapping shapes of $rows rows: made and settled" "$(mb "$made") MB ($((made / n / rows)) B per shape and row)" - -
  row "disk: $((rounds * rows)) changes that all of them have" "$((held / 1024)) KB, $((held / rounds / rows)) B per change, once for all" "<= 400 B per change" "$(holds $((held / rounds / rows)) "<" 400)"
  row "disk: after $merged merges, and when what was before is given up" "$(mb "$after") MB, changes held: $(mb "$(metric shape_log_held_bytes)") MB; read $(mb "$(metric shape_compaction_read_bytes_total)") MB, wrote $(mb "$(metric shape_compaction_written_bytes_total)") MB" "<= 1.5 of what was made" "$(holds "$after" "<" $((made * 3 / 2)))"
  row "disk: after $((n - n / 15)) of them were dropped" "$(mb "$dropped") MB" "<= a fifth of before" "$(holds "$dropped" "<" $((after / 5)))"
}

# front: nginx (Debian's package) with the configuration of deploy/, without TLS, as one process; in FRONT and FRONT_PID.
front() {
  local dir=$WORK/nginx
  # nginx's cached answers of the server before name shapes that are gone.
  rm -rf "$dir"; FRONT=127.0.0.1:$(free_port); mkdir -p "$dir/cache"; chmod -R a+rwX "$WORK"
  sed -e "s#127.0.0.1:4437#$ADDRESS#" -e "s#listen 443 ssl http2#listen $FRONT backlog=8192#" -e "s#/var/cache/nginx/shapes#$dir/cache#" -e '/ssl_certificate/d' \
    "$ROOT/deploy/nginx-shapes.conf" >"$dir/site.conf"
  cat >"$dir/nginx.conf" <<EOF
daemon off;
master_process off;
pid $dir/nginx.pid;
error_log $dir/error.log warn;
worker_rlimit_nofile $(ulimit -n);
events { worker_connections $(($(ulimit -n) - 200)); }
http {
  access_log off;
  client_body_temp_path $dir/body; proxy_temp_path $dir/proxy; fastcgi_temp_path $dir/f; uwsgi_temp_path $dir/u; scgi_temp_path $dir/s;
  include $dir/site.conf;
}
EOF
  (PATH=$PATH:/usr/sbin; exec nginx -p "$dir" -c "$dir/nginx.conf" -e "$dir/error.log") &
  FRONT_PID=$!
  for _ in $(seq 100); do curl -fs "http://$FRONT/v1/health" >/dev/null && return 0; kill -0 $FRONT_PID 2>/dev/null || break; sleep 0.1; done
  tail -3 "$dir/error.log"; return 1
}
FRONT_PID=
front_us() { awk -v t="$TICKS" '{sub(/.*\) /, ""); printf "%.0f", ($12 + $13) / t * 1e6}' "/proc/$FRONT_PID/stat"; }

# Live clients of one shape behind nginx, which gives one answer to all equal requests: the cost of each change for the server itself.
nginx() {
  local n before cost all= low high
  PATH=$PATH:/usr/sbin type -P nginx >/dev/null || { echo "nginx is not here"; return; }
  for n in $AXIS_NGINX; do
    fresh 500 --max-connections 15000 && front || { failed "nginx"; return; }
    before=$(front_us)
    OUT=$("$LOADGEN" --server "$FRONT" --server-pid "$SERVER_PID" --connections "$n" --threads 2 shapes follow --origin "$ADDRESS" \
      --pg "$PG_URL" --sql "$(rows "'front'" 1)" --warm 2 --transactions "${CHANGES:-15}" --pause 1000 2>"$WORK/load.err" | tail -1)
    cost=$(awk -v a="$before" -v b="$(front_us)" -v n="$n" -v t="$((${CHANGES:-15} + 2))" 'BEGIN {printf "%.0f", (b - a) / n / t}')
    kill "$FRONT_PID"; wait "$FRONT_PID" 2>/dev/null; FRONT_PID=
    [ -n "$(field requests_each)" ] || { failed "nginx, $n clients"; return; }
    all+="$(field cpu_us)"$'\n'
    row "nginx: $n clients of one shape" "$(field requests_each) requests and CPU $(field cpu_us) µs of the server per change, RSS $(mb "$(field peak)") MB; nginx $cost µs per client and change; $(field missing) missing; each $(three each_), all of them live after $(field opened_s) s" \
      "<= 2 requests per change" "$(holds "$(field requests_each)" "<" 2)"
  done
  low=$(sort -n <<<"${all%$'\n'}" | head -1) high=$(sort -n <<<"${all%$'\n'}" | tail -1)
  row "nginx: the dearest change of these, by the cheapest" "$(ratio "$high" "$low")" "flat: <= 2" "$(holds "$(ratio "$high" "$low")" "<" 2)"
}

for case in $CASES; do
  echo "== $case ($(date -u +%H:%M:%S), load $(cut -d' ' -f1 /proc/loadavg))"
  $case
done
stop_server

REPORT="$(machine) at the end; Postgres 15 and the client on the same cores.

| load | p50 / p95 / p99 after the commit's acknowledgement, and cost | target | |
|---|---|---|---|
$TABLE"
echo; echo "$REPORT"
[ -n "${REPORT_FILE:-}" ] && printf '%s\n' "$REPORT" >"$REPORT_FILE"
echo "$NO targets are missed"
