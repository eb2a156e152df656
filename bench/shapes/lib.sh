# Shared parts of the measurements of shapes: a private Postgres, a server on an empty folder, rows of the table.
. "$(dirname "${BASH_SOURCE[0]}")/../streams/lib.sh"
. "$ROOT/tests/pg.sh"

# Where data goes must be reachable by the user of Postgres, and on a disk: a sync must cost what it costs.
PG_SCRATCH=${PG_SCRATCH:-/var/tmp}

# Like one that is in use, with two exceptions: nothing happens by itself, and a stopped walsender is not given up.
start_postgres() {
  need_pg 15 || exit 1
  PATH=$(pg_bin 15):$PATH
  TMPDIR=$PG_SCRATCH pg_start 15 fsync=on shared_buffers=512MB max_wal_size=8GB checkpoint_timeout=1h autovacuum=off \
    wal_sender_timeout=0 max_connections=200 max_wal_senders=20 max_replication_slots=20 || exit 1
}

sql() { psql -XqtA -v ON_ERROR_STOP=1 -c "$1" "$PG_URL"; }

# items ROWS: the table, filled. A row is about 120 bytes; `name` has an index in the database, as one would give it one.
items() {
  sql "DROP TABLE IF EXISTS items" 2>/dev/null
  sql "CREATE TABLE items (id bigserial PRIMARY KEY, name text NOT NULL, level int NOT NULL, note text NOT NULL)"
  sql "ALTER TABLE items REPLICA IDENTITY FULL; CREATE INDEX ON items (name)"
  sql "INSERT INTO items (name, level, note) SELECT 'row-' || i, 1, repeat('n', 64) FROM generate_series(1, $1) i"
  sql "VACUUM ANALYZE items"; sql "CHECKPOINT"
}

# Remains of an earlier server in the database: its slot is unused.
forget_server() {
  local slot name
  for _ in $(seq 50); do [ -z "$(sql "SELECT 1 FROM pg_replication_slots WHERE active")" ] && break; sleep 0.1; done
  for slot in $(sql "SELECT slot_name FROM pg_replication_slots"); do sql "SELECT pg_drop_replication_slot('$slot')" >/dev/null; done
  for name in $(sql "SELECT pubname FROM pg_publication"); do sql "DROP PUBLICATION \"$name\""; done
}

# fresh ROWS [flags...]: a new table and a new server on an empty folder.
fresh() {
  local rows=$1; shift
  stop_server; forget_server; items "$rows"
  rm -rf "$WORK/data"; serve_shapes "$@" && idle
}

# Waits until the server does nothing: one that has just begun prepares its journal, which must not be measured.
idle() {
  local before after
  for _ in $(seq 100); do
    before=$(ticks); sleep 0.3; after=$(ticks)
    [ $((after - before)) -le 1 ] && return 0
  done
  echo "the server is not idle after 30 s"
}
ticks() { awk '{print $14 + $15}' "/proc/$SERVER_PID/stat"; }

# Other servers of the same API: SHAPES_SERVER is a command that listens on 127.0.0.1:$PORT, keeps its data in $DATA, and reads DATABASE_URL.
serve_shapes() {
  export DATABASE_URL=$PG_URL ELECTRIC_INSECURE=true DATA=$WORK/data
  if [ -n "${SHAPES_SERVER:-}" ]; then
    export PORT; PORT=$(free_port)
    # In a session of its own: its children end with it.
    setsid bash -c "exec $SHAPES_SERVER" >"$WORK/server.log" 2>&1 &
    SERVER_PID=$! ADDRESS=127.0.0.1:$PORT
  else
    rm -f "$WORK/ready"
    "$THALWEG_BIN" serve --listen 127.0.0.1:0 --data "$DATA" --ready-file "$WORK/ready" "$@" >"$WORK/server.log" 2>&1 &
    SERVER_PID=$!
    until [ -s "$WORK/ready" ]; do kill -0 $SERVER_PID 2>/dev/null || { tail -3 "$WORK/server.log"; return 1; }; sleep 0.02; done
    ADDRESS=$(cat "$WORK/ready")
  fi
  BASE=http://$ADDRESS
  for _ in $(seq 600); do [[ $(curl -s "$BASE/v1/health") == *active* ]] && return 0; kill -0 $SERVER_PID 2>/dev/null || break; sleep 0.05; done
  echo "the server is not active:"; tail -3 "$WORK/server.log"; return 1
}

# measure [flags] shapes COMMAND...: the load generator; its last line is in OUT. Fails if the load did.
measure() {
  OUT=$(RUST_BACKTRACE=0 "$LOADGEN" --server "$ADDRESS" --server-pid "$SERVER_PID" "$@" 2>"$WORK/load.err" | tail -1; exit "${PIPESTATUS[0]}") && [ -n "$OUT" ] && return 0
  sed 's/^/    /' "$WORK/load.err"; return 1
}
