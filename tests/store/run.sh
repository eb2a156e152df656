#!/usr/bin/env bash
# A data folder with a bucket behind it (--store), as its operator sees it: moving, cold reads, a bucket that is away, kills, lost
# disks, backups and checks, and the way back. MOVE_MB (40): what is moved. KILLS (4).
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../bucket/buckets.sh"
MOVE_MB=${MOVE_MB:-40} KILLS=${KILLS:-4} STREAMS=4

need_node && command -v python3 >/dev/null || { skip "a folder with a bucket (needs node >= 20 and python3)"; finish store; }
workspace
trap 'stop_server KILL; stop_stores; rm -rf "$WORK"' EXIT
if ! need_versitygw >"$WORK/install.log" 2>&1; then tail -3 "$WORK/install.log"; skip "a folder with a bucket (needs go)"; finish store; fi
start_versitygw || { tail -3 "$WORK/versitygw.log"; fail "versitygw starts"; finish store; }
STORE_PORT=${LOCATION#*127.0.0.1:} STORE_PORT=${STORE_PORT%%&*}

# ---- helpers

# Small sizes, so that data settles and moves within moments, and little of it stays.
SMALL="--settle-bytes 1MiB --settle-after 300ms --window-bytes 1MiB --journal-segment-bytes 4MiB --chunk-cache-bytes 1MiB
  --offload-every 300ms --store-beacon 500ms"
start() { THALWEG_CACHE_BYTES=${CACHE_BYTES:-8MiB} start_server $SMALL "$@"; }
with_store() { start --store "$LOCATION" "$@"; }
model() { local command=$1; shift; node "$ROOT/tests/store/model.mjs" "$command" "$WORK/model.json" "$BASE" "$@"; }
append() { model append --streams $STREAMS --megabytes "$(python3 -c "print($1 / $STREAMS)")" >/dev/null; }
# metric NAME: its value, whole.
metric() { curl -s "$BASE/metrics" | awk -v name="thalweg_$1" '$1 == name { printf "%.0f\n", $2 }'; }
# within SECONDS COMMAND...: until it succeeds.
within() { local until=$((SECONDS + $1)); shift; until "$@"; do [ $SECONDS -lt $until ] || return 1; sleep 0.1; done; }
is_above() { [ "$(metric "$1")" -gt "$2" ]; }
is_below() { [ "$(metric "$1")" -lt "$2" ]; }
# The bucket has had all of the folder at a later time than this.
is_whole_after() { is_above offload_last_whole_timestamp_seconds "$1" && is_below offload_behind_bytes 1; }
becomes_whole() { within 60 is_whole_after "$(date +%s)"; }
# refused WORDS COMMAND...: it fails, and says so.
refused() { local words=$1; shift; if "$@" >"$WORK/said" 2>&1; then echo "it went through"; return 1; fi; grep -q "$words" "$WORK/said" || { tail -3 "$WORK/said"; return 1; }; }
# A server that is expected to refuse its start. The one that runs is left alone.
start_is_refused() { local words=$1; shift; refused "$words" timeout 60 "$THALWEG_BIN" serve --listen 127.0.0.1:0 $SMALL "$@"; }

# ---- a folder that was there before is moved while it is written to

start && append $((MOVE_MB / 2)); stop_server
with_store || { fail "a folder that was used without a store starts with one"; finish store; }
MOVING=$SECONDS
model append --streams $STREAMS --until "$WORK/enough" >"$WORK/poured" 2>&1 & POURING=$!
append_ended() { touch "$WORK/enough"; wait $POURING; local code=$?; rm -f "$WORK/enough"; return $code; }
check "a folder moves while it is written to" within 120 is_above cold_bytes $((MOVE_MB * 1000000 / 4))
check "no append fails meanwhile" append_ended
append $((MOVE_MB / 2))
check "the bucket then has all of the folder" becomes_whole
echo "moved: $(($(tail -1 "$WORK/poured") / 100 + MOVE_MB / 2)) MB in $((SECONDS - MOVING)) s, appends beside it; $(metric cold_bytes) bytes are cold, $(metric local_object_bytes) on the disk"
check "local files keep to half of --cache-bytes" within 10 is_below local_object_bytes 6000000
check "cold streams are read, at all offsets" model verify
check "reads of cold data are counted" is_above cold_reads_total 0
check "blocks that were read stay in the cache" is_above cache_hits_total 0

# ---- its tools

check "thalweg store ls counts what the root names" bash -c "'$THALWEG_BIN' store ls --json --store '$LOCATION' | grep -q '\"objects\":[1-9]'"
check "thalweg store check reads all of it" "$THALWEG_BIN" store check --store "$LOCATION"
restores() {
  rm -rf "$WORK/backup" "$WORK/restored"
  "$THALWEG_BIN" backup "$@" --to "$WORK/backup" >/dev/null && "$THALWEG_BIN" restore "$WORK/backup" --data "$WORK/restored" >/dev/null
}
check "a running server's backup has the cold objects" restores --server "$BASE"
check "a second server is refused while this one lives" start_is_refused "is in use by" --data "$WORK/other" --store "$LOCATION"
check "a refused start leaves no folder" test ! -e "$WORK/other"

# ---- a bucket that is away

kill -STOP $STORE_PID
check "appends go on while the bucket does not answer" timeout 30 node "$ROOT/tests/store/model.mjs" append "$WORK/model.json" "$BASE" --megabytes 1
kill -KILL $STORE_PID; kill -CONT $STORE_PID; wait $STORE_PID 2>/dev/null
curl -s -o "$WORK/cold" -w '%{http_code}' "$BASE/v1/stream/model/s0?offset=-1" >"$WORK/status" & COLD=$!
append 4
check "failed copies are counted" within 60 is_above offload_failed_total 0
wait $COLD
check "a cold read is answered 503 read_failed" bash -c "[ \$(cat '$WORK/status') = 503 ] && grep -q read_failed '$WORK/cold'"
stop_server KILL
check "a folder starts while the bucket is away" with_store
append 4
began=$SECONDS
stop_server
check "a stop does not wait for a bucket that is away" test $((SECONDS - began)) -lt 15
check "a new folder does not start while the bucket is away" start_is_refused "cannot be used" --data "$WORK/other" --store "$LOCATION"
start_versitygw "$STORE_PORT"
with_store
check "it catches up when the bucket is back" becomes_whole
check "nothing was lost meanwhile" model verify

# ---- kills

for kill in $(seq "$KILLS"); do
  model append --streams $STREAMS --until "$WORK/enough" >"$WORK/poured" 2>&1 & POURING=$!
  sleep 1.$((RANDOM % 10))
  stop_server KILL
  # At the same address, so that the appends go on.
  LISTEN=${BASE#http://} with_store || { fail "it starts after kill $kill"; break; }
  append_ended || { cat "$WORK/poured"; fail "appends go on after kill $kill"; break; }
done
check "nothing is lost by $KILLS kills" model verify

# ---- a folder that was left to the bucket

stop_server
kill $STORE_PID; wait $STORE_PID 2>/dev/null
check "after a stop in order a folder is not served before the bucket was asked" start_is_refused "left everything to the bucket" --data "$WORK/data" --store "$LOCATION"
start_versitygw "$STORE_PORT"

# ---- a lost disk

check "without --store a folder with cold objects is refused" start_is_refused "start with --store" --data "$WORK/data"
check "check of such a folder asks for the store" refused "name it with --store" "$THALWEG_BIN" check "$WORK/data"
check "check reads cold objects with --store" "$THALWEG_BIN" check "$WORK/data" --store "$LOCATION"
check "so does a backup of the folder" restores --from "$WORK/data" --store "$LOCATION"
rm -rf "$WORK/data"
check "an empty folder is filled from the bucket" with_store
check "after a clean stop everything is there, at its offsets" model verify
append 2
becomes_whole
append 4
stop_server KILL
rm -rf "$WORK/data"
check "a lost machine's data is served by a new one" with_store
has_a_prefix() { local before after; before=$(node -p "Object.values(require('$WORK/model.json')).reduce((n, known) => n + known.acknowledged, 0)"); after=$(model verify --lossy) && [ "$after" -ge $((before - 401)) ]; }
check "it has a prefix, and no offset names other bytes" has_a_prefix
append 2
check "it goes on from there" model verify

# ---- back to one disk

stop_server
FETCHING=$(date +%s%N)
check "thalweg store fetch brings all back" "$THALWEG_BIN" store fetch "$WORK/data" --store "$LOCATION"
echo "fetched: $(du -sm "$WORK/data" | cut -f1) MiB in $((($(date +%s%N) - FETCHING) / 1000000)) ms"
kill $STORE_PID; wait $STORE_PID 2>/dev/null
check "the folder starts without a store" start
check "it has everything, without a bucket" model verify
stop_server
check "it is whole" "$THALWEG_BIN" check "$WORK/data"
start_versitygw "$STORE_PORT"
# The longest object: one byte of it is changed.
damaged=$(find "$WORK/versitygw/$BUCKET/test/d" -type f -size +100k | head -1)
python3 - "$damaged" <<'P'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(50_000); byte = f.read(1); f.seek(50_000); f.write(bytes([byte[0] ^ 1]))
P
check "thalweg store check finds a changed byte" refused "is damaged" "$THALWEG_BIN" store check --store "$LOCATION"

# ---- folders that change their store

# other_prefix NAME: an empty prefix of the same bucket.
other_prefix() { echo "${LOCATION/\/test?/\/$1?}"; }
rm -rf "$WORK/data" "$WORK/model.json"
start && append 4; stop_server
# What is there counts as a part of another store's data.
echo "from a bucket" >"$WORK/data/FILLING"; rm "$WORK/model.json"
check "a folder whose filling was cut off begins anew with an empty bucket" start --store "$(other_prefix begun)"
append 4
becomes_whole
append 4
stop_server KILL
check "a killed server goes on with its own disk" start --store "$(other_prefix begun)"
check "nothing of it came from the bucket" model verify
stop_server KILL
rm -rf "$WORK/data" "$WORK/model.json"
CACHE_BYTES=1GiB start --store "$(other_prefix left)" || fail "a new folder starts with a large cache"
append 8
becomes_whole
stop_server KILL
for again in once twice; do
  check "a folder with everything on its disk starts without its store $again" start
  append 8
  sleep 1
  stop_server
done
# The objects are gone, too: what was copied before is copied again.
rm -rf "$WORK/versitygw/$BUCKET/left/d"
check "it comes back to its store" start --store "$(other_prefix left)"
check "the bucket then has all of it" becomes_whole
check "it has everything" model verify
stop_server KILL
rm -rf "$WORK/data"
check "the bucket has it without the disk" start --store "$(other_prefix left)"
check "nothing is missing there, at new offsets" has_a_prefix
stop_server

# ---- copies of folders, and a bucket that lost its root

rm -rf "$WORK/data" "$WORK/model.json"
start --store "$(other_prefix copied)" && append 20
becomes_whole
stop_server KILL
cp -a "$WORK/data" "$WORK/older"
start --store "$(other_prefix copied)" && append 4
becomes_whole
check "a copy of the folder is refused while the server lives" start_is_refused "is in use by" --data "$WORK/older" --store "$(other_prefix copied)"
check "the server goes on" model verify
stop_server KILL
check "an older copy of a folder is refused" start_is_refused "older copy" --data "$WORK/older" --store "$(other_prefix copied)"
rm "$WORK/versitygw/$BUCKET/copied/m/main"
check "a folder goes on whose bucket has lost the root" start --store "$(other_prefix copied)"
append 4
check "the bucket then has all of it" becomes_whole
rm "$WORK/versitygw/$BUCKET/copied/m/main"
append 4
check "so does a server that is running" becomes_whole
check "nothing is missing" model verify
stop_server

# ---- replicated streams

rm -rf "$WORK/data" "$WORK/model.json"
REPLICATED=$(other_prefix replicated)
replicated() { start --store "$REPLICATED" --commit-interval 20ms "$@"; }
is_open() { [ "$(metric replicated_units)" = 1 ]; }
# status METHOD NAME [curl's arguments]: the status of the answer, 000 without one within 3 s.
status() { local method=$1 name=$2; shift 2; curl -s -o "$WORK/answer" -m 3 -w '%{http_code}' -X "$method" "$@" "$BASE/v1/stream/$name"; }
says() { local expected=$1; shift; local found; found=$(status "$@"); [ "$found" = "$expected" ] || { echo "$found, not $expected: $(cat "$WORK/answer")"; return 1; }; }
labelled() { curl -s "$BASE/metrics" | awk -v name="thalweg_$1{unit=\"replicated\"}" '$1 == name { printf "%.0f\n", $2 }'; }
replicated && check "the unit of replicated streams is taken over" within 20 is_open
check "a replicated stream is made" says 201 PUT kept -H 'Stream-Durability: replicated' -H 'Content-Type: text/plain'
check "a durable one stands beside it" says 201 PUT local -H 'Content-Type: text/plain'
model append --streams $STREAMS --megabytes 1 --durability replicated >/dev/null
timed() { [ "$(metric append_seconds_count)" -gt "$(labelled journal_batches_total)" ]; }
check "the time of each is counted" timed
check "batches have several appends" test "$(labelled journal_frames_total)" -gt "$(labelled journal_batches_total)"
for kill in $(seq "$KILLS"); do
  model append --streams $STREAMS --durability replicated --until "$WORK/enough" >"$WORK/poured" 2>&1 & POURING=$!
  sleep 1.$((RANDOM % 10))
  stop_server KILL
  rm -rf "$WORK/data"
  LISTEN=${BASE#http://} replicated || { fail "a new machine starts after loss $kill"; break; }
  append_ended || { cat "$WORK/poured"; fail "appends go on after loss $kill"; break; }
done
check "nothing acknowledged as replicated is lost by $KILLS kills with their disks" model verify
check "a stop leaves nothing to replay" stop_server
replicated && within 20 is_open
check "everything is there after a stop in order" model verify

kill -STOP $STORE_PID
check "an append is not acknowledged while the bucket does not answer" says 000 POST kept -H 'Content-Type: text/plain' --data-binary 'in doubt;'
says 201 PUT local -H 'Content-Type: text/plain' >/dev/null
check "durable streams go on" says 204 POST local -H 'Content-Type: text/plain' --data-binary 'local;'
kill -CONT $STORE_PID
check "appends go on when it answers again" within 30 says 204 POST kept -H 'Content-Type: text/plain' --data-binary 'after;'
check "what was in doubt is there once" bash -c "[ \"\$(curl -s '$BASE/v1/stream/kept?offset=-1')\" = 'in doubt;after;' ]"
stop_server KILL
kill -STOP $STORE_PID
replicated
check "a start without the bucket serves what the disk has" says 200 GET local
check "and refuses what the bucket may have" says 503 GET kept
check "the refusal says so" grep -q store_away "$WORK/answer"
kill -CONT $STORE_PID
check "replicated streams are served when it answers" within 60 says 200 GET kept

# A server that slept for longer than anything takes, while another one has taken its place.
ZOMBIE=$SERVER_PID ZOMBIE_BASE=$BASE
kill -STOP $ZOMBIE
mv "$WORK/data" "$WORK/asleep"
replicated && within 20 is_open
says 204 POST kept -H 'Content-Type: text/plain' --data-binary 'next;'
kill -CONT $ZOMBIE
BASE=$ZOMBIE_BASE check "a server that slept acknowledges nothing" bash -c "! curl -fs -m 5 -H 'Content-Type: text/plain' --data-binary 'late;' '$ZOMBIE_BASE/v1/stream/kept'"
is_gone() { ! kill -0 $ZOMBIE 2>/dev/null; }
check "it stops itself" within 30 is_gone
check "nothing of it is in the stream" bash -c "[ \"\$(curl -s '$BASE/v1/stream/kept?offset=-1')\" = 'in doubt;after;next;' ]"
check "nothing is missing" model verify
stop_server

# A bucket that is emptied under replicated streams.
rm -rf "$WORK/data" && mkdir -m 700 "$WORK/lost"
start --store "file://$WORK/lost" --commit-interval 20ms && within 20 is_open
says 201 PUT local -H 'Content-Type: text/plain' >/dev/null
rm -rf "$WORK"/lost/*
sleep 17
check "a server whose disk has everything goes on without its bucket" says 200 GET local
stop_server
check "and makes units anew when it starts" start --store "file://$WORK/lost" --commit-interval 20ms
within 20 is_open
says 201 PUT kept -H 'Stream-Durability: replicated' -H 'Content-Type: text/plain' >/dev/null
rm -rf "$WORK"/lost/*
ended() { ! kill -0 $SERVER_PID 2>/dev/null; }
check "a server stops when its replicated streams are lost with the bucket" within 40 ended
start --store "file://$WORK/lost" --commit-interval 20ms
sleep 3
check "it does not make them anew" says 503 GET kept
stop_server
finish store
