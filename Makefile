# Everything that is done with this repository. `make` alone prints the list.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
FUZZTIME ?= 10s
BENCHFLAGS ?=
BASE ?=
ROUNDS ?= 9
COMPAREFLAGS ?=
MUTANTFLAGS ?=
CHAOSFLAGS ?= -duration 2m -v
HOURS ?= 1000
TESTFLAGS ?=
PACKAGES ?=

# Pinned, so that a new check of theirs breaks nobody's build.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
BENCHSTAT := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: ## see the whole thing at work, in six seconds
	$(GO) run ./cmd/postdate demo

.PHONY: test
test: deps ## run every test, against a real RabbitMQ, Kafka and MongoDB (TESTFLAGS=... PACKAGES=...)
	@GO="$(GO)" PACKAGES="$(PACKAGES)" .ci/test $(TESTFLAGS)

.PHONY: deps
deps: ## install what the tests need, where it is missing
	@.ci/deps

.PHONY: short
short: ## run the tests that need nothing beyond Go: no broker, no database
	@race=$$(command -v "$$($(GO) env CC)" >/dev/null && echo -race || true); \
	$(GO) test $$race -short -timeout 10m $$($(GO) list -test -f '{{.ImportPath}} {{.Deps}}' ./... | \
	  awk '$$1 ~ /\.test$$/ && !/rabbitmqtest|kafkatest|mongotest/ { sub(/\.test$$/, "", $$1); print $$1 }')

.PHONY: lint
lint: ## check the form: gofmt, go vet, staticcheck, redocly, spectral
	@unformatted=$$(gofmt -l .); \
	  if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	cd bench && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...
	@.ci/doclint

.PHONY: console
console: ## build the console's files from its sources, after a change in console/app
	@tools=$$(.ci/clienttools); export PATH="$$tools/bin:$$PATH"; cd console/app; \
	  trap 'rm -f node_modules' EXIT; [ -e node_modules ] && trap - EXIT || ln -s "$$tools/console/node_modules" node_modules; \
	  npm run --silent check && npm run --silent build

.PHONY: fuzz
fuzz: ## run each fuzz target for a while (FUZZTIME=10s)
	@GO="$(GO)" .ci/fuzz $(FUZZTIME)

.PHONY: bench
bench: ## measure throughput and lateness on this machine (BENCHFLAGS=...); bench/README.md: beside other queues
	$(GO) run ./cmd/postdate bench $(BENCHFLAGS)

.PHONY: bench-compare
bench-compare: ## fail if a hot path is slower than in BASE= (else the merge base with origin/main, or HEAD~1), ROUNDS=9
	$(GO) run ./cmd/benchcompare -base "$(BASE)" -rounds $(ROUNDS) -benchstat $(BENCHSTAT) $(COMPAREFLAGS)

.PHONY: bite
bite: ## show that the simulator finds planted bugs, with which seed and how soon
	$(GO) test ./sim -run 'TestBite' -count 1 -v | grep -v '^=== '

.PHONY: mutants
mutants: ## change what decides in small ways, and see who notices; goes on where it was (MUTANTFLAGS=-help)
	nice $(GO) run ./cmd/mutants $(MUTANTFLAGS)

.PHONY: sim-long
sim-long: ## simulate clusters with faults, fresh seeds (HOURS=1000 of cluster time)
	$(GO) run ./cmd/sim -hours $(HOURS)

.PHONY: chaos
chaos: ## let faults loose on a cluster of real processes, and account for every message (CHAOSFLAGS=...)
	$(GO) run ./cmd/chaos $(CHAOSFLAGS)

.PHONY: build
build: ## build bin/postdate
	$(GO) build -trimpath -o bin/postdate ./cmd/postdate

.PHONY: clean
clean: ## remove what build made
	rm -rf bin
