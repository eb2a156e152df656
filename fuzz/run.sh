#!/usr/bin/env bash
# Runs every fuzz target for so many seconds (default 600): fuzz/run.sh [SECONDS]. Needs a nightly compiler and cargo-fuzz.
set -u
cd "$(dirname "$0")" || exit 1
SECONDS_EACH=${1:-600}
TARGETS=$(sed -n 's/^name = "\([a-z_]*\)"$/\1/p' Cargo.toml | grep -v '^thalweg')
passed=0 failed=0
if ! cargo +nightly --version >/dev/null 2>&1 || ! cargo +nightly fuzz --version >/dev/null 2>&1; then
  echo "fuzzing needs a nightly compiler and cargo-fuzz: rustup toolchain install nightly && cargo install cargo-fuzz"
  if [ "${REQUIRE_ALL:-0}" = 1 ]; then echo "STEP fuzz: 0 passed, 1 failed, 0 skipped"; exit 1; fi
  echo "STEP fuzz: 0 passed, 0 failed, 1 skipped"
  exit 0
fi
for target in $TARGETS; do
  if cargo +nightly fuzz run --sanitizer none "$target" -- -max_total_time="$SECONDS_EACH" -max_len=8192 -print_final_stats=1 2>&1 | tail -12; [ "${PIPESTATUS[0]}" = 0 ]; then
    passed=$((passed + 1)); echo "ok      $target: $SECONDS_EACH s without a finding"
  else
    failed=$((failed + 1)); echo "FAILED  $target"
  fi
done
echo "STEP fuzz: $passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
