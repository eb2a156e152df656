#!/usr/bin/env bash
# The kernel's storage, manifest and journal sink in buckets of real object stores: the questions that every backend answers alike,
# and a unit of logs that owners take over from each other.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/buckets.sh"

command -v python3 >/dev/null && command -v curl >/dev/null || { skip "buckets (needs python3 and curl)"; finish bucket; }
workspace
trap 'stop_stores; rm -rf "$WORK"' EXIT

# ask NAME LOCATION: the contract suite, each question a line.
ask() {
  local result name
  while read -r _ name _ result; do
    if [ "$result" = ok ]; then pass "$1: $name"; else fail "$1: $name"; fi
  done < <(cd "$ROOT" && THALWEG_TEST_BUCKETS=$2 cargo test --locked -p thalweg-object --test contract -p thalweg-log --test bucket \
    2>&1 | tee "$WORK/contract.log" | grep -E '^test .* \.\.\. ')
  [ "$(grep -c '^test result: ok' "$WORK/contract.log")" = 2 ] || { tail -40 "$WORK/contract.log"; fail "$1: both suites end"; }
}

for store in moto versitygw; do
  if "need_$store" >"$WORK/$store-install.log" 2>&1; then
    [ $store = moto ] || export THALWEG_TEST_CHECKS_KEYS=1
    if "start_$store"; then ask "$store" "$LOCATION"; else tail -3 "$WORK/$store.log"; fail "$store starts"; fi
  else
    tail -3 "$WORK/$store-install.log"; skip "a bucket of $store (needs pip, or go)"
  fi
done
finish bucket
