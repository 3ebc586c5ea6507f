# The project's commands; `make help` lists them.
.PHONY: help run demo tutorial test explore sim sim-shards mistakes crash-points fuzz e2e deploy-test browser bench bench-live bench-fleet lint release image ci
.DEFAULT_GOAL := help

# Incremental files make a build from nothing slower. Whoever calls cargo after each changed line has them.
export CARGO_INCREMENTAL ?= 0

LOG ?=
# Set, it keeps a demo and its live page up until Ctrl-C.
LINGER ?=

help: ## This list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

run: ## Build, and show throughline at work on a recorded incident (LOG=FILE plays another log, LINGER=1 keeps its live page up)
	cargo run --locked -- demo $(if $(LINGER),--linger) $(LOG)

demo: ## The same on three real API servers, built first if need be (LINGER=1, too)
	tests/apiserver/build >/dev/null
	cargo build --locked --bins
	cargo run --locked --example live-demo -- $(if $(LINGER),--linger)

TUTORIAL ?= target/tutorial

tutorial: ## The three API servers of docs/tutorial.md, built first if need be; they run until Ctrl-C
	tests/apiserver/build >/dev/null
	cargo build --locked --bins --example tutorial-clusters
	cargo run --locked --quiet --example tutorial-clusters -- $(TUTORIAL)

# Much of a test is waiting, so four times as many as there are cores keep those busy.
TEST_THREADS ?= $(shell echo $$((4 * $$(getconf _NPROCESSORS_ONLN))))

test: ## All tests
	RUST_TEST_THREADS=$(TEST_THREADS) cargo test --locked --workspace

CASES ?= 2000

explore: ## The randomised tests with cases that nobody tried before (CASES=2000 of each)
	PROPTEST_RNG_SEED=$$(date +%s%N) PROPTEST_CASES=$(CASES) cargo test --locked --test properties -- --skip leader_model --skip blast_radius

SIM_SECONDS ?= 300
# So many seeds, however long they take; empty: as many as SIM_SECONDS allow.
SIM_SEEDS ?=
# Another commit, other seeds.
SIM_FIRST ?= $(shell printf '%d' 0x$$(git rev-parse --short=7 HEAD 2>/dev/null || echo 1))

# Built for speed, which takes minutes once; 0 is the build that the other tests have.
sim sim-shards crash-points mistakes: export CARGO_PROFILE_DEV_OPT_LEVEL ?= 1

sim: ## The whole program under simulation: seeds for five minutes (SIM_SECONDS), or SIM_SEED=N or SIM_PLAN='…' alone
	SIM_SECONDS=$(SIM_SECONDS) SIM_SEEDS=$(SIM_SEEDS) SIM_FIRST=$(SIM_FIRST) \
	  cargo test --locked --test simulation -- --include-ignored --exact --nocapture many_seeds_end_right

sim-shards: ## Forty times two rollouts between numbers of shards (some minutes after the build)
	cargo test --locked --test simulation -- --include-ignored --exact --nocapture shards::many_rollouts_end_right

crash-points: ## An instance killed at each point of eight scenarios, one run for each (a few minutes after the build)
	cargo test --locked --test simulation -- --include-ignored --nocapture every_crash

MISTAKE ?=

mistakes: ## Seeded mistakes, each of which the simulation must find within a minute (MISTAKE=NAME tries one)
	tests/simulation/mistakes/try $(MISTAKE)

FUZZ_SECONDS ?= 60
FUZZ ?=

fuzz: ## Every reader of bytes from outside under libFuzzer, FUZZ_SECONDS=60 each (FUZZ=NAME runs one); needs a nightly Rust
	cargo +nightly --version >/dev/null || rustup toolchain install nightly --profile minimal
	cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz@0.13.2
	FUZZ_CORPORA=$(CURDIR)/fuzz/corpus cargo test --locked --test properties -- --include-ignored write_corpora
	for target in $(or $(FUZZ),$$(cargo +nightly fuzz list)); do \
	  cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -timeout=10 -print_final_stats=1 || exit 1; \
	done
	@command -v go >/dev/null || { echo "NOT RUN: the comparison with Go's answers; it needs Go" >&2; exit 0; }; \
	  cargo test --locked --test properties -- --include-ignored --nocapture go_gives_the_same_answers

# Half of a test is waiting, so on two cores four at a time keep both busy. Each has up to three API servers
# of its own, of 0.4 GB each.
E2E_THREADS ?= 4
E2E ?=

e2e: ## Live tests on real API servers, built first if need be (E2E=NAME runs some)
	cargo test --locked --test e2e -- --include-ignored --test-threads=$(E2E_THREADS) $(E2E)

CHROMEDRIVER ?= chromedriver

browser: ## The HTML page of a replay and the live page, clicked through in a headless Chromium
	@command -v $(CHROMEDRIVER) >/dev/null || { echo "make browser needs Chromium and its driver, and finds no $(CHROMEDRIVER)." >&2; \
	  echo "Debian, Ubuntu: apt-get install chromium chromium-driver; elsewhere: CHROMEDRIVER=/path/to/chromedriver" >&2; exit 1; }
	CHROMEDRIVER=$(CHROMEDRIVER) cargo test --locked --test browser -- --include-ignored --test-threads=1

deploy-test: ## deploy/, the image, and the commands of install.md and tutorial.md, on real API servers; tools are built first
	tests/apiserver/build >/dev/null
	tests/deploy/tools/build >/dev/null
	if tests/deploy/image/build >/dev/null; then skip=; elif [ $$? = 3 ]; then skip='--skip image::'; else exit 1; fi; \
	  cargo test --locked --test deploy -- --include-ignored --test-threads=$(E2E_THREADS) $$skip $(E2E) && \
	  { [ -z "$$skip" ] || echo "NOT RUN: the tests of the image; tests/deploy/image/build says why" >&2; }

bench: ## The numbers in docs/explanation/benchmarks.md: cost per event, memory, replay speed
	cargo bench --locked --bench scale --bench replay

bench-live: ## Its numbers of a live run, on real API servers (about 20 minutes; QUICK=1 for a look)
	tests/apiserver/build >/dev/null
	cargo bench --locked --bench live

bench-fleet: ## Its numbers of a fleet of projects (about 10 minutes; QUICK=1 for a look, FLEET_PROJECTS=N)
	cargo bench --locked --bench fleet
	cargo bench --locked --bench fleet -- shards

lint: ## Format, clippy, docs, dependencies: nothing may warn
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items
	@# Unoptimised: it runs for two seconds, and takes minutes to optimise.
	cargo deny --version >/dev/null 2>&1 || cargo install --locked --debug cargo-deny@0.20.2
	cargo deny --locked check bans licenses sources

release: ## Into dist/: the static binary, man pages, completions, SBOM, checksums (docs/how-to/release.md)
	release/build all

image: ## The container image throughline:VERSION; needs buildah, podman or docker (docs/how-to/release.md)
	release/build image

ci: ## What CI runs
	.ci/run
