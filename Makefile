# Holdfast needs only Go, git and make. What else a target needs it fetches itself or names in a sentence.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go

# Pinned. Raise the version here, and say why in docs/DECISIONS.md.
GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)

# Where Holdfast is built for; always without CGO.
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

# Flags of all tests; the timeout is each package's. RUN='-run TestName ./holdmem' narrows a run.
TEST_FLAGS ?= -race -shuffle=on -timeout=8m
RUN ?= ./...

.PHONY: help
help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | \
		while IFS='|' read -r name text; do printf '  make %-8s %s\n' "$$name" "$$text"; done

.PHONY: lint
lint: fmt tidy vet golangci cross ## Check formatting, go.mod, go vet, golangci-lint and the builds for all platforms.

.PHONY: fmt
fmt:
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .); if [ -n "$$unformatted" ]; then \
		echo "gofmt would change these files; run gofmt -w on them:"; echo "$$unformatted"; exit 1; fi

.PHONY: tidy
tidy:
	@$(GO) mod tidy -diff || { echo "go.mod or go.sum is not tidy; run go mod tidy"; exit 1; }
	@$(GO) mod verify

.PHONY: vet
vet:
	$(GO) vet ./...

.PHONY: golangci
golangci: $(GOLANGCI)
	$(GOLANGCI) run ./...

# Built from its own go.mod and go.sum, so that its dependencies stay out of this module. The first build takes minutes.
$(GOLANGCI):
	@echo "building golangci-lint $(GOLANGCI_VERSION), once"
	@mkdir -p bin/tmp
	GOFLAGS= GOBIN=$(CURDIR)/bin/tmp CGO_ENABLED=0 $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv bin/tmp/golangci-lint $@ && rmdir bin/tmp

.PHONY: cross
cross:
	@for platform in $(PLATFORMS); do \
		echo "go build ./... for $$platform"; \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GO) build ./...; \
	done

.PHONY: test
test: cc servers ## Run all tests with the race detector, in random order.
	CGO_ENABLED=1 $(GO) test $(TEST_FLAGS) $(RUN)

# The race detector needs a C compiler.
.PHONY: cc
cc:
	@if command -v "$$($(GO) env CC)" >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing a C compiler for the race detector"; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends gcc libc6-dev; \
	else \
		echo "make test needs a C compiler for the race detector: install gcc and the C library's headers (Debian: gcc libc6-dev)"; exit 1; \
	fi

# The stores of this version are memory and SQLite, which need no server. A backend that needs one installs and starts
# it here, idempotently, and its tests fail if it is not there.
.PHONY: servers
servers:

.PHONY: clean
clean: ## Remove what the other targets built.
	rm -rf bin
