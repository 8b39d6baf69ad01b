# Muster. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations
export GOFLAGS := -buildvcs=false
TOOL := go tool -modfile=tools/go.mod

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 16

.PHONY: generate
generate: ## regenerate sqlc and templ output (committed)
	$(TOOL) sqlc generate
	$(TOOL) templ generate -lazy -path web
