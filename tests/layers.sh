#!/usr/bin/env bash
# The layer rule: arrows point down only.
#
#   thalweg -> host | cli      host -> engines -> log -> unit | container -> journal | storage | manifest -> disk -> base
#   host -> rounds             engines -> wire/http | wire/pg, which do not know each other; wire/http -> base
#   cli -> wire/http | base, and nothing else: the client knows servers by their protocols
#   host -> streams | shapes for what tokens say; it knows no other engine
#   engines never on engines, but subscriptions on streams; within shapes: server -> source | core -> model
#   object -> journal | storage | manifest, and not on disk
#   sim and pgtest only as dev-dependencies; tests/ and bench/ on none of our crates
. "$(dirname "$0")/lib.sh"

# edges: `from to kind`, of our own crates, from cargo metadata on standard input.
edges() {
  python3 -c '
import json, sys
meta = json.load(sys.stdin)
ours = {p["name"] for p in meta["packages"]}
for p in meta["packages"]:
    for d in p["dependencies"]:
        if d["name"] in ours:
            print(p["name"], d["name"], d["kind"] or "normal")
'
}

# judge: prints every edge that points the wrong way, and every crate without a layer.
judge() {
  awk '
    BEGIN {
      split("thalweg-base 0 thalweg-disk 1 thalweg-journal 2 thalweg-storage 2 thalweg-manifest 2 thalweg-object 3 thalweg-container 3 thalweg-unit 3 thalweg-rounds 3 thalweg-interleave-unit 3 thalweg-log 4 thalweg-interleave 4 thalweg-filter 3 thalweg-streams 5 thalweg-shapes-model 5 thalweg-lakebase-wal 5 thalweg-lakebase-redo 5.3 thalweg-lakebase-pageserver 5.5 thalweg-shapes-source 5.3 thalweg-shapes-core 5.3 thalweg-shapes 5.5 thalweg-subscriptions 6 thalweg-cli 6 thalweg-host 6.5 thalweg 7", t, " ")
      for (i = 1; i in t; i += 2) layer[t[i]] = t[i + 1]
      # Crates that know these of ours and no others: parts of an engine, the client, the host.
      split("thalweg-object base journal storage manifest;thalweg-shapes-model base filter;thalweg-lakebase-wal base pg;thalweg-lakebase-redo base pg lakebase-wal;thalweg-lakebase-pageserver base pg lakebase-wal lakebase-redo;thalweg-shapes-source base http pg shapes-model;thalweg-shapes-core base filter shapes-model;thalweg-cli base http;thalweg-host base disk journal storage manifest object log rounds http streams shapes", o, ";")
      for (i in o) { n = split(o[i], w, " "); for (k = 2; k <= n; k++) knows[w[1], "thalweg-" w[k]] = 1; narrow[w[1]] = 1 }
      wire["thalweg-http"]; wire["thalweg-pg"]
      split("", o); split("thalweg-crash thalweg-oracle thalweg-loadgen thalweg-fuzz", o, " "); for (i in o) outside[o[i]] = 1
    }
    # The family of an engine in several crates is its first word.
    function family(name) { split(name, part, "-"); return part[2] }
    function bad(why) { print $1 " -> " $2 " (" $3 "): " why; found = 1 }
    $1 == "thalweg-fuzz" { next }
    $1 in outside { bad("tests and benches know only the binary"); next }
    $2 in outside { bad("nothing depends on tests and benches"); next }
    $2 == "thalweg-pgtest" { if ($3 != "dev") bad("Postgres clusters are for tests only"); next }
    $1 == "thalweg-pgtest" { bad("Postgres clusters know nothing of ours"); next }
    $2 == "thalweg-sim" { if ($3 != "dev") bad("the simulator is for tests only"); next }
    $1 == "thalweg-sim" { if ($2 == "thalweg" || layer[$2] > 1) bad("the simulator knows the lowest layers only"); next }
    $1 in wire { if ($1 != "thalweg-http" || $2 != "thalweg-base") bad("a protocol knows no kernel, no engine and no other protocol"); next }
    $1 == "thalweg-cli" && !(($1, $2) in knows) { bad("the client knows servers by their protocols only"); next }
    # A crate of which the tests turn features on.
    $1 == $2 && $3 == "dev" { next }
    $2 == "thalweg-cli" || $2 == "thalweg-host" { if ($1 != "thalweg") bad("only the binary knows the client and the host"); next }
    $3 == "dev" { if ($2 in layer && $1 in layer && layer[$2] > layer[$1]) bad("points up"); next }
    $1 in narrow && !(($1, $2) in knows) { bad("this crate knows less: see the list of what it knows"); next }
    $2 in wire { if (!($1 in layer) || layer[$1] < 5) bad("the kernel knows no protocol"); next }
    !($1 in layer) || !($2 in layer) { bad("a crate without a layer: name it in tests/layers.sh"); next }
    layer[$2] >= 5 && layer[$1] < 6.5 && family($1) != family($2) && $1 " " $2 != "thalweg-subscriptions thalweg-streams" {
      bad("engines do not know each other"); next
    }
    layer[$1] <= layer[$2] { bad(layer[$1] == layer[$2] ? "siblings do not know each other" : "points up") }
    END { exit found }'
}

command -v python3 >/dev/null || { skip "layer rule (needs python3)"; finish layers; }
EDGES=$(cd "$ROOT" && cargo metadata --no-deps --format-version 1 | edges) || fail "cargo metadata"
check "the crates' dependencies point down only" judge <<<"$EDGES"

# The rule can say no.
refuses() { local found; found=$(judge <<<"$1") && { echo "  accepted: $1"; return 1; }; return 0; }
check "a kernel crate on an engine is refused" refuses "thalweg-log thalweg-streams normal"
check "a bucket on the files of a folder is refused" refuses "thalweg-object thalweg-disk normal"
check "a sibling is refused" refuses "thalweg-journal thalweg-storage normal"
check "an engine on an engine is refused" refuses "thalweg-shapes thalweg-streams normal"
check "an engine's later layer on another engine is refused" refuses "thalweg-subscriptions thalweg-shapes-model normal"
check "the values of shapes on Postgres's protocol are refused" refuses "thalweg-shapes-model thalweg-pg normal"
check "the source of shapes on the kernel is refused" refuses "thalweg-shapes-source thalweg-log normal"
check "what decides on the source is refused" refuses "thalweg-shapes-core thalweg-shapes-source normal"
check "HTTP on the kernel is refused" refuses "thalweg-http thalweg-log normal"
check "HTTP on Postgres is refused" refuses "thalweg-http thalweg-pg normal"
check "Postgres on HTTP is refused" refuses "thalweg-pg thalweg-http dev"
check "the client on an engine is refused" refuses "thalweg-cli thalweg-streams dev"
check "the client on the kernel is refused" refuses "thalweg-cli thalweg-log normal"
check "an engine on the client is refused" refuses "thalweg-streams thalweg-cli normal"
check "an engine on the host is refused" refuses "thalweg-streams thalweg-host normal"
check "the host on the client is refused" refuses "thalweg-host thalweg-cli normal"
check "the host on another engine is refused" refuses "thalweg-host thalweg-subscriptions normal"
check "the kernel on HTTP is refused" refuses "thalweg-log thalweg-http normal"
check "the simulator in a shipping crate is refused" refuses "thalweg-journal thalweg-sim normal"
check "a Postgres cluster in a shipping crate is refused" refuses "thalweg-shapes thalweg-pgtest normal"
check "a test on our crates is refused" refuses "thalweg-crash thalweg-base normal"
check "a crate without a layer is refused" refuses "thalweg-utils thalweg-base normal"
finish layers
