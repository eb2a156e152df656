# make run    serve streams from ./data on 127.0.0.1:4437, and shapes of the Postgres database in DATABASE_URL if that is set
# make test   all tests; needs node >= 20 for the conformance suite and the clients, and fetches Postgres, else these are reported as skipped
# make check  formatting, lints, documentation, the layer rule, the list of simulations
# make deny   licences, duplicate versions and advisories of dependencies; needs cargo-deny
# make soak   the long forms: simulations, kills, fuzzing
# make bench  side by side with the reference server; bench/README.md has the other measurements, make bench-settle and so on
#
# Build output stays outside the clone, so that a fresh clone on the same machine builds fast.

SHELL := /bin/bash
CACHE := $(or $(THALWEG_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/thalweg)
export CARGO_TARGET_DIR ?= $(CACHE)/target

.PHONY: help run test check deny soak bench bench-streams bench-sustained bench-nginx bench-settle bench-scale bench-fulldisk bench-bucket bench-shapes dist tools

help:
	@sed -n 's/^# \(make.*\)/\1/p' Makefile

tools:
	@command -v cargo >/dev/null || { echo "cargo is not here: install Rust 1.95 or newer (rustup, or the package rustup)"; exit 1; }
	@command -v cc >/dev/null || { echo "installing a C compiler (build-essential)"; \
	  as=; [ "$$(id -u)" = 0 ] || as="sudo -n"; \
	  $$as apt-get update -qq && $$as apt-get install -y -qq --no-install-recommends build-essential >/dev/null; }
	@command -v cc >/dev/null || { echo "a C compiler is not here: install the package build-essential"; exit 1; }
	@cargo --version | awk '{split($$2, v, "."); if (v[1] * 1000 + v[2] < 1095) {print "cargo " $$2 " is too old: Rust 1.95 or newer is needed (rustup update)"; exit 1}}'

run: tools
	cargo run --release --locked -p thalweg -- dev $(ARGS)

test: tools
	tests/run.sh $(STEPS)

check: tools
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked
	tests/layers.sh
	tests/simulations.sh

# Advisories need the network; `make deny ADVISORIES=` leaves them out.
ADVISORIES ?= advisories
deny: tools
	@cargo deny --version >/dev/null 2>&1 || { echo "cargo-deny is not here: cargo install cargo-deny --locked"; exit 1; }
	cargo deny --locked check licenses bans sources $(ADVISORIES)

# SEEDS: simulated histories per test; INTERLEAVINGS: orders of threads per test; KILLS: kills per run; FUZZ_SECONDS: per fuzz target.
soak: tools
	tests/soak.sh

bench: bench-streams

bench-streams: tools
	bench/streams/run.sh

bench-sustained: tools
	bench/streams/sustained.sh

bench-nginx: tools
	bench/streams/nginx.sh

bench-settle: tools
	bench/streams/settle.sh

bench-scale: tools
	bench/streams/scale.sh

bench-fulldisk: tools
	bench/streams/fulldisk.sh

bench-bucket: tools
	bench/bucket/run.sh

bench-shapes: tools
	bench/shapes/run.sh

# The binary that is shipped: slower to build, a little faster to run.
dist: tools
	cargo build --profile dist --locked -p thalweg
	@echo "$(CARGO_TARGET_DIR)/dist/thalweg"
