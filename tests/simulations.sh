#!/usr/bin/env bash
# Every simulation can be found by its name, and the soak runs every one of them.
#
#   tests/simulations.sh                                  judges the sources: part of `make check`
#   SEEDS=10000 INTERLEAVINGS=100000 tests/simulations.sh run   runs them all, and compares what ran with what the sources declare
#
# A simulation is a test named `simulation_...` (seeded histories) or `interleavings_...` (orders of threads, chosen by a checker).
. "$(dirname "$0")/lib.sh"

# declared FOLDER...: the names of all simulations in the sources.
declared() { grep -rhoE --include='*.rs' '^ *fn (simulation|interleavings)_[a-z0-9_]+' "$@" | sed 's/.*fn //' | sort; }

# nameless FOLDER...: every test that runs seeded histories or interleavings under a name that the soak does not look for, and every
# file that runs some without having any test of that name.
nameless() {
  grep -rlE --include='*.rs' 'histories\(|[^_]seeds\(|"SEEDS?"|"INTERLEAVINGS"|shuttle::check_|shuttle::Runner' "$@" | grep -v '/sim/src/histories.rs$' |
    xargs -r awk '
      function leave() { if (file != "" && !named) print file ": runs histories or interleavings, and has no test named simulation_... or interleavings_..." }
      FNR == 1 { leave(); file = FILENAME; named = 0; test = 0; name = "" }
      /^ *#\[test\]/ { test = 1; next }
      /^ *(pub(\([a-z]+\))? )?(async )?fn / { name = $0; sub(/.*fn /, "", name); sub(/[(<].*/, "", name); is_test = test; test = 0; if (name ~ /^(simulation|interleavings)_/) named = 1 }
      /(histories|[^_]seeds|shuttle::check_[a-z]+)\(/ && is_test && name !~ /^(simulation|interleavings)_/ && !/fn / { print FILENAME ": " name " is a simulation by what it does, and not by its name" }
      END { leave() }'
}

# left_out DECLARED RAN: names of the first file that are not in the second.
left_out() { comm -23 <(sort -u "$1") <(sort -u "$2"); }
none() { local found; found=$("$@"); [ -z "$found" ] || { sed 's/^/  /' <<<"$found"; return 1; }; }

cd "$ROOT" || exit 1
workspace
declared crates > "$WORK/declared"

if [ "${1:-}" = run ]; then
  cargo test --release --workspace --locked -- simulation_ interleavings_ --nocapture 2>&1 | tee "$WORK/log" | grep -E '^(test .*(simulation|interleavings)|simulation|interleavings|test result: FAILED|replay|error)'
  check "all simulations passed" [ "${PIPESTATUS[0]}" = 0 ]
  sed -nE 's/^test (.*::)?((simulation|interleavings)_[a-z0-9_]+) .*/\2/p' "$WORK/log" > "$WORK/ran"
  check "no simulation was left out of $(wc -l < "$WORK/declared")" none left_out "$WORK/declared" "$WORK/ran"
  finish simulations
fi

check "every simulation has a name by which the soak finds it" none nameless crates
check "simulations of the journal, the log, the manifest, the storage, the streams, the nodes and the threads are there" [ "$(wc -l < "$WORK/declared")" -ge 9 ]
check "two simulations never share a name" none uniq -d "$WORK/declared"

# The rules can say no.
mkdir "$WORK/sources"
printf '#[test]\nfn random_histories_hold() {\n    thalweg_sim::histories(10, "x", history);\n}\n' > "$WORK/sources/a.rs"
printf '#[test]\nfn simulation_of_x_holds() {\n    thalweg_sim::histories(10, "x", history);\n}\n' > "$WORK/sources/b.rs"
printf 'fn orders() -> usize {\n    std::env::var("INTERLEAVINGS").unwrap()\n}\n' > "$WORK/sources/c.rs"
found=$(nameless "$WORK/sources")
check "a simulation under another name is found" grep -q 'a.rs: random_histories_hold' <<<"$found"
check "a file without a named simulation is found" grep -q 'c.rs: runs histories' <<<"$found"
check "a named simulation is none of these" [ "$(grep -c 'b.rs' <<<"$found")" = 0 ]
check "a simulation that the soak left out is named" [ "$(left_out <(printf 'simulation_a\nsimulation_b\n') <(echo simulation_a))" = simulation_b ]
finish simulations
