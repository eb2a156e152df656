#!/usr/bin/env bash
# A full disk: appends are refused clearly, deletes work, service resumes by itself. On a small ext4 image; needs root.
. "$(dirname "$0")/lib.sh"
MB=${MB:-256}
[ "$(id -u)" = 0 ] || { skip "full disk (needs root)"; finish fulldisk; }
build; mkdir -p "$SCRATCH"; WORK=$(mktemp -d "$SCRATCH/full-XXXXXX")
trap 'stop_server KILL; umount "$WORK/disk" 2>/dev/null; rm -rf "$WORK"' EXIT
mkdir "$WORK/disk"
if truncate -s "${MB}M" "$WORK/image" && mkfs.ext4 -q -m 0 "$WORK/image" && mount -o loop "$WORK/image" "$WORK/disk" 2>/dev/null; then echo "on ext4, $MB MB"; 
elif mount -t tmpfs -o size="${MB}m" tmpfs "$WORK/disk" 2>/dev/null; then echo "on tmpfs, $MB MB"
else skip "full disk (no small disk can be mounted)"; finish fulldisk; fi
serve thalweg:durable "$WORK/disk/data" --journal-segment-bytes 8MiB --journal-bound-bytes 64MiB --reserve-bytes 16MiB --settle-bytes 8MiB --settle-after 1s --purge-after 2s || { fail "the server starts"; finish fulldisk; }

head -c 200000 /dev/urandom >"$WORK/body"
status() { curl -s -o "$WORK/answer" -w '%{http_code}' "$@"; }
make() { status -X PUT "$BASE/v1/stream/full-$1" -H 'content-type: application/octet-stream'; }
append() { status -X POST "$BASE/v1/stream/full-$1" -H 'content-type: application/octet-stream' --data-binary @"$WORK/body"; }
taken=0 code=
for i in $(seq 0 19); do make "$i" >/dev/null; done
for i in $(seq $((MB * 20))); do
  code=$(append $((i % 20)))
  case $code in 20*) taken=$((taken + 1)) ;; 503) sleep 0.2; code=$(append $((i % 20))); [ "$code" = 204 ] || { refused=$((${refused:-0} + 1)); [ "$refused" -gt 30 ] && break; } ;; *) break ;; esac
done
echo "$taken appends of 200 KB were taken, then: $code $(cat "$WORK/answer")"
check "appends are refused with a status that says try later or no space" grep -qE '^(503|507|429)$' <<<"$code"
check "the refusal says why" test -s "$WORK/answer"
check "reads go on" test "$(status "$BASE/v1/stream/full-0?offset=-1")" = 200
check "health still answers" test -n "$(curl -s "$BASE/health")"
before=$(du -sm "$WORK/disk/data" | cut -f1)
gone=0; for i in $(seq 0 14); do [ "$(status -X DELETE "$BASE/v1/stream/full-$i")" = 204 ] && gone=$((gone + 1)); done
check "deletes work on the full disk" test "$gone" = 15
resumed=; began=$SECONDS
while [ $((SECONDS - began)) -lt 60 ]; do [ "$(append 19)" = 204 ] && { resumed=$((SECONDS - began)); break; }; sleep 0.5; done
echo "resumed after ${resumed:-never} s; $before MB before, $(du -sm "$WORK/disk/data" | cut -f1) MB after"
check "service resumes by itself" test -n "$resumed"
stop_server KILL
serve thalweg:durable "$WORK/disk/data" && pass "it starts again after kill -9" || fail "it starts again after kill -9"
check "what was kept is still there" test "$(status "$BASE/v1/stream/full-18?offset=-1")" = 200
finish fulldisk
