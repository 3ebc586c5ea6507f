# The project's commands; `make help` lists them.
.PHONY: help run test bench lint ci
.DEFAULT_GOAL := help

LOG ?= fixtures/incident-503.jsonl

help: ## This list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

run: ## Build, and replay the recorded incident (LOG=FILE replays another log)
	cargo run --release --locked -- replay $(LOG)

test: ## All tests
	cargo test --locked

bench: ## The numbers in the README: cost per event, memory, replay speed
	cargo bench --locked --bench scale --bench replay

lint: ## Format, clippy, docs, dependencies: nothing may warn
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items
	cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny@0.20.2
	cargo deny --locked check bans licenses sources

ci: ## What CI runs
	.ci/run
