# Commands (or paths) that the tests need besides Rust, each with its Debian package.
NEEDS := redis-server=redis-server redis-cli=redis-tools openssl=openssl curl=curl node=nodejs chromium=chromium python3=python3 pip3=python3-pip \
	cc=gcc nginx=nginx caddy=caddy haproxy=haproxy rabbitmq-server=rabbitmq-server systemd-analyze=systemd \
	/usr/lib/postgresql/*/bin/initdb=postgresql /usr/share/fonts/truetype/wqy/wqy-microhei.ttc=fonts-wqy-microhei
# The oldest major version of Node.js that runs the tests of the browser SDK and the Node SDK.
NODE := 20
# Folder of the gateways that Debian does not package.
GATEWAYS := target/gateways
# Folder of the Redis and Valkey servers that Debian 12 does not package, and those that every test run needs.
SERVERS := target/servers
# Virtual environment of the Python package's tests.
PYTHON := target/python
NATIVE_SERVERS := redis-8.10 valkey-9.0
# The former version, which can run beside this one during an upgrade, and the folder of its build.
FORMER_COMMIT := c5fd720
FORMER := target/former
# The tests that run on every server: laws, races, lost replies, faults, and the museum. Skipped: TLS, since some servers are built
# without it, and the preloaded clock, which has no effect on statically linked servers.
SERVER_TESTS := redis:: museum:: tokens::races:: keys::races:: keys::redis_commands:: keys::redis_faults:: tokens::remembered \
	intervals::windows_and_locks:: --skip tls_works --skip check_redis:: --skip redis_clock_jump
# Version of schemathesis, which checks the service against its specification.
SCHEMATHESIS := 4.32.5
# Versions of cargo-fuzz and cargo-deny, and the time for each fuzz target.
CARGO_FUZZ := 0.13.2
FUZZ_SECONDS := 60
CARGO_DENY := 0.20.2
# Duration of the soak test, in seconds.
SOAK := 600
# Additional needs of the benchmarks.
BENCH_NEEDS := wrk=wrk

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: setup lint web node python unit doc ## Set up, then check and test everything, as CI does

.PHONY: setup
setup: ## Install the programs that the tests need
	@missing=; for need in $(NEEDS); do command -v $${need%%=*} >/dev/null || [ -f $${need%%=*} ] || missing="$$missing $${need#*=}"; done; \
	[ -z "$$missing" ] && exit 0; \
	install="apt-get update -q && apt-get install -y -q --no-install-recommends$$missing"; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then DEBIAN_FRONTEND=noninteractive sh -c "$$install"; \
	elif [ -n "$$CI" ] && command -v sudo >/dev/null; then sudo DEBIAN_FRONTEND=noninteractive sh -c "$$install"; \
	else echo "This needs$$missing. Install it with: sudo sh -c '$$install'" >&2; exit 1; fi
	@node -e 'process.exit(parseInt(process.versions.node) < $(NODE) ? 1 : 0)' || \
	{ echo "This needs Node.js $(NODE) or later, and here is $$(node --version). Debian's backports or nodejs.org have it." >&2; exit 1; }
	@cmp -s tests/gateways.txt $(GATEWAYS)/pins || { rm -rf $(GATEWAYS) && \
	pip3 install -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes --target $(GATEWAYS) -r tests/gateways.txt && \
	cp tests/gateways.txt $(GATEWAYS)/pins; }
	@tests/servers.sh $(SERVERS) $(NATIVE_SERVERS)
	@cmp -s client-sdk/python/tests/requirements.txt $(PYTHON)/pins || { rm -rf $(PYTHON) && python3 -m venv --without-pip $(PYTHON) && \
	pip3 --python $(PYTHON)/bin/python install -q --disable-pip-version-check --only-binary :all: --require-hashes -r client-sdk/python/tests/requirements.txt && \
	cp client-sdk/python/tests/requirements.txt $(PYTHON)/pins; }
	@cmp -s client-sdk/node/package-lock.json client-sdk/node/node_modules/installed-lock.json || { cd client-sdk/node && npm ci --no-audit --no-fund && \
	cp package-lock.json node_modules/installed-lock.json; }
	@cmp -s client-sdk/web/package-lock.json client-sdk/web/node_modules/installed-lock.json || { cd client-sdk/web && npm ci --no-audit --no-fund && \
	cp package-lock.json node_modules/installed-lock.json; }

.PHONY: lint
lint: ## Check format and lints, with all features, with none, and with tower alone
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --test upgrade --all-features --locked -- -D warnings
	cargo clippy -p onceward --all-targets --no-default-features --locked -- -D warnings
	cargo clippy -p onceward --all-targets --features tower --locked -- -D warnings
	cargo metadata --manifest-path fuzz/Cargo.toml --locked --format-version 1 > /dev/null
	cargo update -q --manifest-path bench/peers/Cargo.toml --workspace --locked
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps --locked

.PHONY: web
web: setup ## Check and test the browser SDK and the demo, by themselves and in Chromium
	cd client-sdk/web && npm test
	cargo test --workspace --all-features --all-targets --locked --no-run
	cd client-sdk/web && npm run browser
	node --test web-demo/browser/*.test.mjs server/browser/*.test.mjs

.PHONY: node
node: setup ## Check and test the Node SDK: types, tests on Express, Fastify and the Fetch API, and its package
	cargo test --workspace --all-features --all-targets --locked --no-run
	cd client-sdk/node && npm test

.PHONY: python
python: setup ## Check, test and package the Python package, against the built service
	cargo build --workspace --all-features --locked --bin onceward
	cd client-sdk/python && ../../$(PYTHON)/bin/mypy && ../../$(PYTHON)/bin/python -m pytest
	rm -rf $(PYTHON)/wheel && pip3 wheel -q --disable-pip-version-check --no-deps -w $(PYTHON)/wheel ./client-sdk/python

.PHONY: unit
unit: ## Run unit and integration tests
	cargo test --workspace --all-features --all-targets --locked

.PHONY: doc
doc: ## Run the examples in the documentation and the README
	cargo test --workspace --all-features --doc --locked

.PHONY: figures
figures: ## Print the size of the library, and count vague words in the prose
	@python3 tests/figures.py

# Not `cargo run`: it has no --workspace, so it would compile the dependencies again with other features.
.PHONY: generate
generate: ## Write openapi/openapi.json and the generated tables of the documentation
	cargo build -q --workspace --all-features --locked --example generate
	target/debug/examples/generate

.PHONY: test-api
test-api: setup ## Check the running service against its specification with schemathesis (minutes)
	cargo build -p onceward-server --locked
	[ -x target/schemathesis/bin/schemathesis ] || python3 -m venv target/schemathesis
	target/schemathesis/bin/pip install -q --disable-pip-version-check schemathesis==$(SCHEMATHESIS)
	tests/api.sh

.PHONY: fuzz
fuzz: ## Fuzz the parsers of tokens, headers, forms, records and Redis replies, each for FUZZ_SECONDS (60)
	[ "$$(target/tools/bin/cargo-fuzz --version 2>/dev/null)" = "cargo-fuzz $(CARGO_FUZZ)" ] || \
	cargo install cargo-fuzz --version $(CARGO_FUZZ) --locked --root target/tools
	for target in token header form record reply; do mkdir -p fuzz/corpus/$$target && \
	RUSTC_BOOTSTRAP=1 target/tools/bin/cargo-fuzz run --sanitizer none $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
	-max_total_time=$(FUZZ_SECONDS) -max_len=4096 -print_final_stats=1 || exit 1; done

.PHONY: package
package: ## Package the library crates together, and compile each from its package (minutes)
	cargo package --locked --allow-dirty --target-dir target/packages -p onceward -p onceward-api -p onceward-macros -p onceward-patterns -p onceward-client

.PHONY: deny
deny: ## Check licences, sources and banned crates of the dependencies (not advisories, which need the network)
	[ "$$(target/tools/bin/cargo-deny --version 2>/dev/null)" = "cargo-deny $(CARGO_DENY)" ] || \
	cargo install cargo-deny --version $(CARGO_DENY) --locked --root target/tools
	target/tools/bin/cargo-deny --all-features --locked check licenses bans sources

.PHONY: model
model: ## Check the models of a token, a key and a Redis that loses data, with up to two faults (minutes)
	MODEL_FAULTS=2 cargo test --release -p onceward --locked --test epoch_model --test key_model --test redeem_model -- --nocapture

.PHONY: races
races: setup ## Race 32 requests for each of 10,000 tokens, in two processes of each web framework and in memory (minutes)
	RACES=10000 cargo test --release --workspace --all-features --locked --test all races:: -- --nocapture

.PHONY: faults
faults: setup ## Kill workers; crash, split, freeze, slow down and disconnect Redis, Sentinel, Cluster and databases hundreds of times; lose 1,000 COMMIT replies (half an hour)
	FAULTS=50 SQL_FAULTS=200 COMPLETED=1000 cargo test --release --workspace --all-features --locked --test all -- --nocapture --test-threads 2 \
	faults:: crashes:: epochs:: sentinel:: cluster:: lost_replies:: memory_limit::

.PHONY: test-servers
test-servers: setup ## Run the tests of the Redis store on every downloadable Redis and Valkey (half an hour)
	tests/servers.sh $(SERVERS)
	cargo test --workspace --all-features --all-targets --locked --no-run
	for server in $(SERVERS)/*/redis-server; do echo "== $$server: $$($$server --version)"; \
	REDIS_SERVER=$$PWD/$$server $(MAKE) --no-print-directory test-server || exit 1; done

.PHONY: test-server
test-server: setup ## Run the tests of the Redis store on the server binary REDIS_SERVER (minutes)
	cargo test --workspace --all-features --locked --test all -- --test-threads 4 $(SERVER_TESTS)

.PHONY: test-upgrade
test-upgrade: setup ## Run this version and the former one on one Redis (minutes; builds the former one)
	[ -x $(FORMER)/target/debug/peer ] || { git cat-file -e $(FORMER_COMMIT) || { echo "This needs the whole history: git fetch --unshallow" >&2; exit 1; }; \
	mkdir -p $(FORMER)/source && git archive -o $(FORMER)/source.tar $(FORMER_COMMIT) && tar -x -f $(FORMER)/source.tar -C $(FORMER)/source && \
	cargo build --manifest-path $(FORMER)/source/Cargo.toml --target-dir $(FORMER)/target -p onceward-server -p onceward-tests --bins --locked; }
	FORMER=$$PWD/$(FORMER)/target/debug cargo test --workspace --all-features --locked --test upgrade -- --nocapture

.PHONY: soak
soak: setup ## Send mixed traffic for SOAK seconds (600) over a slow, failing network, while one process is killed
	SOAK=$(SOAK) cargo test --release --workspace --all-features --locked --test all soak:: -- --nocapture

.PHONY: contract
contract: setup ## Run the contract suite on every stack, with 200 parallel duplicates (minutes)
	DUPLICATES=200 cargo test --workspace --all-features --locked --test all contract:: -- --test-threads 4

.PHONY: sdk-faults
sdk-faults: setup ## Send 10,000 SDK submissions to an application and to each stack of the contract suite, over a network that fails one request in three (an hour)
	SUBMISSIONS=10000 cargo test --release --workspace --all-features --locked --test all submissions_take_effect_once_despite_network_faults -- \
	--nocapture --test-threads 2

.PHONY: proxy-faults
proxy-faults: setup ## Send 10,000 submissions through two proxies over a network that fails one request in three, while proxies and upstream are killed (minutes)
	SUBMISSIONS=10000 cargo test --release --workspace --all-features --locked --test all proxy::faults:: -- --nocapture

.PHONY: bench
bench: ## Measure CPU time, allocations and latency of each policy beside an unprotected route, on actix-web and axum, and the Rust client beside reqwest (15 minutes after the build)
	@$(MAKE) --no-print-directory setup NEEDS="$(NEEDS) $(BENCH_NEEDS)"
	cargo build --release -p onceward-bench --locked
	target/release/onceward-bench

.PHONY: bench-latency
bench-latency: setup ## Measure the latency of a token and a key at 500 requests/s beside an unprotected route (minutes)
	cargo run --release -p onceward-bench --locked -- latency

.PHONY: bench-allocations
bench-allocations: setup ## Count the allocations per request of each policy above an unprotected route (seconds after the build)
	cargo run --release -p onceward-bench --locked --bin onceward-bench-counting -- allocations

.PHONY: bench-instructions
bench-instructions: ## Count the instructions per request with callgrind; BASE: benchmark binary to compare with; FRAMEWORK=--axum: on axum (a minute after the build)
	@$(MAKE) --no-print-directory setup NEEDS="$(NEEDS) valgrind=valgrind"
	cargo build --release -p onceward-bench --locked
	python3 bench/instructions.py $(FRAMEWORK) $(BASE) target/release/onceward-bench

.PHONY: bench-cluster
bench-cluster: ## Measure a cluster of three masters beside one Redis, in one run (a minute or two after the build)
	@$(MAKE) --no-print-directory setup NEEDS="$(NEEDS) $(BENCH_NEEDS)"
	cargo run --release -p onceward-bench --locked -- cluster

# The crate `idempotent` 2.0 requires Rust 1.98, and compiles with the version of this workspace.
.PHONY: bench-peers
bench-peers: ## Measure a key, on actix-web and axum, beside the crate `idempotent` on axum, in one run (minutes after the build)
	@$(MAKE) --no-print-directory setup NEEDS="$(NEEDS) $(BENCH_NEEDS)"
	cargo build --release --manifest-path bench/peers/Cargo.toml --target-dir target/peers --locked --ignore-rust-version
	cargo run --release -p onceward-bench --locked -- peers target/peers/release/idempotent-on-axum

.PHONY: bench-proxy
bench-proxy: ## Measure `onceward proxy` beside nginx as a plain proxy, in one run (minutes after the build)
	@$(MAKE) --no-print-directory setup NEEDS="$(NEEDS) $(BENCH_NEEDS)"
	cargo build --release -p onceward-server --locked
	cargo run --release -p onceward-bench --locked -- proxy target/release/onceward

.PHONY: bench-sdk
bench-sdk: setup ## Measure the latency of each Python and Node middleware beside the same application without it, at 200 requests/s, in one run (minutes after the build)
	cargo build --release -p onceward-server --locked
	cargo run --release -p onceward-bench --locked -- sdk target/release/onceward

.PHONY: bench-sending
bench-sending: ## Measure the gain of batches and of one Redis connection per worker, on actix-web and axum (minutes after the build)
	@$(MAKE) --no-print-directory setup NEEDS="$(NEEDS) $(BENCH_NEEDS)"
	cargo run --release -p onceward-bench --locked -- sending

.PHONY: bench-verbs
bench-verbs: setup ## Measure the cost of each store verb on Redis, by script and natively, in batches of 1 and 32 (minutes)
	cargo run --release -p onceward-bench --locked -- verbs

.PHONY: bench-memory
bench-memory: ## Measure time and instructions of each verb of the memory store (a minute after the build)
	@$(MAKE) --no-print-directory setup NEEDS="$(NEEDS) valgrind=valgrind"
	cargo run --release -p onceward-bench --locked -- memory

.PHONY: bench-scale
bench-scale: setup ## Measure CPU, bytes and pauses with up to ten million tokens and keys; write docs/growth.svg (about 15 minutes, 8 GB)
	cargo run --release -p onceward-bench --locked -- scale 10000000 docs/growth.svg

.PHONY: bench-sql
bench-sql: setup ## Measure the cost of a claim in a transaction, also while EXPIRED rows (ten million) are removed (minutes)
	cargo run --release -p onceward-bench --locked -- sql $(EXPIRED)

.PHONY: forged
forged: setup ## Send one million forged tokens to the service, which must send no store command (minutes)
	FORGED=1000000 cargo test --release --workspace --all-features --locked --test all forged_tokens_are_rejected -- --nocapture

.PHONY: flood
flood: setup ## Open 8,300 connections from one client while other clients and health checks still receive responses (a minute after the build)
	FLOOD=8300 cargo test --release --workspace --all-features --locked --test all service::connection_flood:: -- --nocapture --test-threads 1
