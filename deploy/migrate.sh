#!/usr/bin/env bash
# Copies streams from another server of the protocol into thalweg, by the protocol alone. docs/migrate.md describes the whole migration.
#
#   deploy/migrate.sh FROM TO <names      FROM, TO: http://HOST:PORT; names: one per line, as they follow /v1/stream/ in URLs
#
# May be run again at any time: a stream that was copied in part is continued, one that was copied whole is compared again.
# Ends with code 1 if a stream is not there whole. THALWEG names the binary; THALWEG_TOKEN, if set, is
# for TO, and FROM_TOKEN for FROM.
set -u
[ $# = 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
FROM=${1%/} TO=${2%/} THALWEG=${THALWEG:-thalweg} FROM_TOKEN=${FROM_TOKEN:-} failed=0
# The token goes to URLs of this server only.
export THALWEG_SERVER=$TO

head_of() { curl -fsSI ${FROM_TOKEN:+-H "authorization: Bearer $FROM_TOKEN"} "$@" | tr -d '\r'; }
# Each token goes to its own server only.
read_source() {
  if [ -n "$FROM_TOKEN" ]; then THALWEG_SERVER=$FROM THALWEG_TOKEN=$FROM_TOKEN "$THALWEG" stream read "$1"; else "$THALWEG" stream read "$1"; fi
}
to() { curl -fsS ${THALWEG_TOKEN:+-H "authorization: Bearer $THALWEG_TOKEN"} "$@"; }
field() { sed -n "s/^$1: *//ip" | head -1; }

copy() {
  local source=$FROM/v1/stream/$1 target=$TO/v1/stream/$1 head there type ttl expires unit has
  head=$(head_of "$source") || return 1
  there=$(to -I "$target" 2>/dev/null | tr -d '\r')
  type=$(field content-type <<<"$head") ttl=$(field stream-ttl <<<"$head") expires=$(field stream-expires-at <<<"$head")
  if [ "$(field stream-closed <<<"$there")" != true ]; then
    to -o /dev/null -X PUT "$target" -H "content-type: $type" ${ttl:+-H "stream-ttl: $ttl"} ${expires:+-H "stream-expires-at: $expires"} || return 1
    # The copy is a prefix of the source, which the comparison checks at the end: continue behind it.
    case $type in application/json*) unit=l ;; *) unit=c ;; esac
    has=$("$THALWEG" stream read "$target" | wc -$unit) || return 1
    read_source "$source" | tail "-${unit/l/n}" "+$((has + 1))" | "$THALWEG" stream append "$target" --lines --content-type "$type"
    [ "${PIPESTATUS[*]}" = "0 0 0" ] || return 1
  fi
  cmp <(read_source "$source") <("$THALWEG" stream read "$target") || return 1
  if [ "$(field stream-closed <<<"$head")" = true ]; then "$THALWEG" stream close "$target" || return 1; fi
}

while IFS= read -r name; do
  [ -n "$name" ] || continue
  if copy "$name" </dev/null; then echo "copied  $name"; else echo "FAILED  $name"; failed=1; fi
done
exit $failed
