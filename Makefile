# Every target is a script of scripts/, or one line of cargo; this file only names them.

.DEFAULT_GOAL := help
.PHONY: help test quick dist compare properties chaos fuzz bench python fmt lint doc deny layout uncalled call-path call-cost peers hosts frameworks

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## Everything: installs what is missing, checks, starts servers, runs all tests
	@scripts/test

quick: ## Format, lints and the tests that need no database and no Node: the inner loop
	@scripts/quick

properties: ## Run the property tests on fresh random cases, many of them: make properties CASES=100000
	@PROPTEST_CASES=$(or $(CASES),20000) cargo test -p stayput-wire -p stayput-upstream \
		--test json --test splice --test headers --test streams --test budget

chaos: ## Inject faults into a gateway, and into three replicas on each database: make chaos SEED=7 TRIALS=200
	@STAYPUT_CHAOS_SEED=$(or $(SEED),1) STAYPUT_CHAOS_TRIALS=$(or $(TRIALS),200) \
		cargo test -p stayput-gateway --test kill_matrix --test cluster faults -- --nocapture

fuzz: ## Fuzz every target for a minute, or one: make fuzz TARGET=name SECONDS=600
	@scripts/fuzz $(TARGET) $(SECONDS)

bench: ## Run the benchmarks but the soak, or some: make bench ARGS="sessions stores links agent server gateway identify limits python soak"
	@scripts/bench $(ARGS)

python: ## Build the Python wheel into target/python, test it and check its types
	@scripts/python build
	@scripts/python test
	@scripts/python types

dist: ## Make the archive that users install from, with its checksum, in target/packages
	@scripts/dist

compare: ## Ask Stayput and other gateways the same four questions, and print the table of docs/comparison.md
	@scripts/install peers bench-peers
	@cargo build -p stayput-gateway --bin stayput
	@scripts/compare

fmt: ## Format the code
	@cargo fmt --all
	@if [ -f fuzz/Cargo.toml ]; then cargo fmt --manifest-path fuzz/Cargo.toml; fi

lint: ## Run clippy as the tests do, warnings being errors
	@scripts/check clippy

doc: ## Build the API docs, warnings being errors
	@scripts/check doc

deny: ## Check licences, sources and the direction of dependencies
	@scripts/install deny
	@scripts/check deny

layout: ## Print for each crate the entries of src/, the largest import cycle, lines of code and public items
	@cargo run --quiet -p stayput-testkit --bin stayput-layout

uncalled: ## Print the public functions of the library crates that no code of the product calls
	@cargo run --quiet -p stayput-testkit --bin stayput-layout uncalled

call-path: ## Print the files that one legacy call to a stdio server passes through; needs valgrind
	@CARGO_PROFILE_DEV_DEBUG=line-tables-only cargo build --quiet --target-dir target/call-path \
		-p stayput-gateway -p stayput-testkit --bin stayput --bin stayput-testserver
	@scripts/call-path

call-cost: ## Print the instructions that one legacy call takes, to a stdio and an HTTP server, and forwarded by a replica; needs valgrind
	@CARGO_PROFILE_RELEASE_STRIP=none cargo build --quiet --release --target-dir target/call-cost \
		-p stayput-gateway -p stayput-testkit --bin stayput --bin stayput-testserver
	@scripts/call-path --cost

hosts: ## Ask Claude Code, Codex, Gemini CLI and opencode whether they reach a server after `stayput install`
	@scripts/hosts

frameworks: ## Try agent frameworks with the wheel and through the gateway; those that can be installed
	@scripts/frameworks

peers: ## Fetch the servers and SDKs of others that the tests speak to, into the user's cache
	@scripts/install peers
