# Everything a person types. `make` alone prints what there is.

SHELL := bash
# A toolchain installed for one user lies here, also where the shell does not look.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

# How many seeds the simulator runs: a handful in the gate, a million when there is time.
QUICK_SEEDS ?= 2000
SEEDS ?= 1000000
# Worlds of the engine: a hundred times slower than those of the bare machine.
QUICK_ENGINE_SEEDS ?= 1000
ENGINE_SEEDS ?= 50000
# The same on a PostgreSQL server of their own.
POSTGRES_SEEDS ?= 1500
# Worlds whose runs are translated for front ends.
TRANSLATED_WORLDS ?= 10000
# Processes that the kill matrix kills.
QUICK_KILLS ?= 1000
KILLS ?= 10000
# The same of three nodes on a PostgreSQL server, where each loss costs a lease or two.
QUICK_NODE_KILLS ?= 500
NODE_KILLS ?= 5000
# Interrupts that race against a run on another node.
INTERRUPT_ROUNDS ?= 2000
# Rounds of each race between requests to one thread.
RACE_ROUNDS ?= 2000
# Servers that are stopped in the middle of decisions, on each store.
STOP_TRIALS ?= 100

# A gate builds what is committed: there, a lock file that would have to change is an error.
LOCKED := $(if $(CI),--locked)
# Where `cargo test --workspace` has built every program, with the features of the whole workspace. `cargo run -p` would choose
# other features for some dependencies, and compile them again.
BUILT := $(or $(CARGO_TARGET_DIR),target)/debug
# The demo's program: `cargo build` shows its progress, and says nothing if there is nothing to do.
DEMO_BUILD := cargo build $(LOCKED) --profile demo
DEMO_BUILT := $(or $(CARGO_TARGET_DIR),target)/demo
TEST_OUTPUT := target/test-output.txt

# The sum over every test binary. Not counted: what only acts for another test, and what could not be tried here, which is
# said again. A run without a single test is a failure, whatever else it says.
TALLY := awk '/^test result:/ { passed += $$4; failed += $$6 } \
	/^test ([a-z_]+::)*a_process_that_[a-z_]+ \.\.\. ok/ { passed-- } \
	/^skipped: / { passed--; print } \
	END { printf "checks: %d passed, %d failed\n", passed, failed; exit passed <= 0 }' $(TEST_OUTPUT)

.PHONY: help toolchain test test-real-model demo prove story bench bench-peers test-long mutants deny fmt

help:
	@echo 'make test        the gate: format, lints, docs, tests, behaviour index, simulated worlds, $(QUICK_KILLS) kills, $(QUICK_NODE_KILLS) of three nodes, dependencies'
	@echo 'make demo        a server with a run that waits for your approval, and three commands to try'
	@echo 'make prove       kills a process again and again for ten seconds, and counts approvals and effects'
	@echo 'make story       one run that is held, crashes and continues, printed as a story'
	@echo 'make bench       what runs, decisions, parked fleets, long runs, streams and a server cost, in memory and on SQLite'
	@echo 'make bench-peers installs LangGraph and Restate into target/peers, and runs them and us in turns'
	@echo 'make test-long   $(SEEDS) worlds of the machine (SEEDS=n), $(ENGINE_SEEDS) of the engine, $(POSTGRES_SEEDS) on PostgreSQL, $(TRANSLATED_WORLDS) translated for front ends, $(KILLS) kills, $(NODE_KILLS) of three nodes, $(RACE_ROUNDS) rounds of each race, $(STOP_TRIALS) orderly stops on each store, planted faults, the README in a fresh clone'
	@echo 'make test-real-model  installs a small real model into target/real-model, and streams, counts and interrupts it'
	@echo 'make mutants     mutation testing of the machine; installs cargo-mutants when it is missing'
	@echo 'make deny        licences, bans and sources of the dependencies'
	@echo 'make fmt         format every source file'

toolchain:
	@.ci/toolchain

test: toolchain
	@echo '== format'
	cargo fmt --all --check
	@echo '== lints'
	cargo clippy $(LOCKED) --workspace --all-targets -- -D warnings
	@echo '== documentation'
	RUSTDOCFLAGS='-D warnings' cargo doc $(LOCKED) --workspace --no-deps
	@echo '== tests'
	@mkdir -p $(dir $(TEST_OUTPUT))
	@echo 'cargo test --workspace --no-fail-fast'
	@set -o pipefail; cargo test $(LOCKED) --workspace --no-fail-fast 2>&1 | tee $(TEST_OUTPUT) || { $(TALLY); exit 1; }
	@echo '== behaviour index'
	$(BUILT)/behaviour-index $(TEST_OUTPUT) docs/behaviours.md tests/behaviour_index/owners.txt
	@echo '== requests by the OpenAPI document'
	HOLDPOINT_PROGRAM=$(BUILT)/holdpoint tests/schemathesis/run
	@echo '== simulator'
	$(BUILT)/sim --seeds $(QUICK_SEEDS)
	$(BUILT)/sim --engine --seeds $(QUICK_ENGINE_SEEDS)
	@echo '== kill matrix'
	$(BUILT)/kill matrix --kills $(QUICK_KILLS)
	$(BUILT)/kill matrix --store postgres --kills $(QUICK_NODE_KILLS)
	$(BUILT)/kill concurrent-runs --store postgres
	@echo '== licences, bans and sources of the dependencies'
	.ci/deny
	@echo
	@echo 'Formatted, linted, documented, tested; every behaviour is accounted for, every planted fault applies;'
	@echo '$(QUICK_SEEDS) simulated worlds of the machine and $(QUICK_ENGINE_SEEDS) of the engine kept every invariant,'
	@echo 'and $(QUICK_KILLS) killed processes and $(QUICK_NODE_KILLS) killed nodes of three lost nothing and repeated nothing.'
	@$(TALLY)

test-real-model: toolchain
	cargo build $(LOCKED) -p holdpoint --features cli
	python3 tests/real_model/check.py $(or $(CARGO_TARGET_DIR),target)/debug/holdpoint target/real-model

demo: toolchain
	@echo 'Building the server. The first build compiles about 200 crates and takes about three minutes on two cores.'
	@$(DEMO_BUILD) -p holdpoint --features cli --bin holdpoint
	@$(DEMO_BUILT)/holdpoint demo

prove: toolchain
	@$(DEMO_BUILD) -p holdpoint --features cli --bin holdpoint
	$(DEMO_BUILT)/holdpoint prove

story: toolchain
	@$(DEMO_BUILD) -p sim
	$(DEMO_BUILT)/sim story

bench: toolchain
	cargo build -q $(LOCKED) --release -p holdpoint --features cli --bin holdpoint
	cargo run -q $(LOCKED) --release -p bench

bench-peers: toolchain
	bench/peers/run

test-long: toolchain
	cargo run -q $(LOCKED) --release -p sim -- --seeds $(SEEDS)
	cargo run -q $(LOCKED) --release -p sim -- --engine --seeds $(ENGINE_SEEDS)
	cargo run -q $(LOCKED) --release -p sim -- --engine --store postgres --seeds $(POSTGRES_SEEDS)
	TRANSLATED_WORLDS=$(TRANSLATED_WORLDS) cargo test -q $(LOCKED) --release -p sim --test translators
	RACE_ROUNDS=$(RACE_ROUNDS) cargo test -q $(LOCKED) -p stores --test conformance at_once_do_not_both_succeed
	RACE_ROUNDS=$(RACE_ROUNDS) cargo test -q $(LOCKED) -p holdpoint-http --test server thread_races
	cargo run -q $(LOCKED) -p kill -- matrix --kills $(KILLS)
	cargo run -q $(LOCKED) -p kill -- matrix --store postgres --kills $(NODE_KILLS)
	HOLDPOINT_INTERRUPT_ROUNDS=$(INTERRUPT_ROUNDS) cargo test -q $(LOCKED) -p stores --test postgres -- interrupts::
	HOLDPOINT_STOP_TRIALS=$(STOP_TRIALS) cargo test -q $(LOCKED) -p holdpoint --features cli --test cli -- orderly_stop
	sim/faults/run
	tests/readme/run

mutants: toolchain
	@cargo mutants --version >/dev/null 2>&1 || cargo install --locked cargo-mutants
	tests/mutants/run

deny: toolchain
	.ci/deny

fmt: toolchain
	cargo fmt --all
