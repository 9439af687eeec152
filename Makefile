# make run and make test are all that a fresh machine with Go needs.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ACTIONLINT  := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.1.4
WITHPG      := go run ./deploy/pgdev/withpg

.PHONY: help run test screenshots race system bench fuzz lint postgres pgbouncer cc curl node messagedb python chromium promtool chaos restart-test release-data

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: postgres ## the service with a private PostgreSQL and a demo account; Ctrl-C stops both
	go build -o bin/leadlog ./cmd/leadlog
	@bin/leadlog dev

# Tests wait for databases and processes much of the time, so more packages than processors run at once: with the race detector fewer, as
# it makes them compute more. In the short mode, pgtest.System skips the tests that only make system runs.
PACKAGES := 4
GOTEST = go test -timeout 40m -p $(PACKAGES)

test: postgres curl node python promtool ## what tells whether a change is right, on a throwaway PostgreSQL
	$(WITHPG) -- $(GOTEST) -short ./...

race: PACKAGES := 2
race: postgres cc curl node python promtool ## the tests of make test with the race detector, in the programs that they start too
	$(WITHPG) -- $(GOTEST) -short -race ./...

system: postgres pgbouncer curl node python chromium ## chaos, faults, failovers, restores, browsers, the second engine, Helm
	$(WITHPG) -- $(GOTEST) ./cmd/leadlog/systemtest ./httpapi/pagescript
	$(WITHPG) -- $(GOTEST) -run OnEventStoreDB ./httpapi
	cd deploy/charttest && $(GOTEST) -vet=off . # vet would analyze all of Helm and Kubernetes

screenshots: postgres node chromium ## renews the screenshots of the documents
	LEADLOG_TEST_SCREENSHOTS=$(CURDIR)/deploy/docs/screenshots $(WITHPG) -- \
		go test ./cmd/leadlog/systemtest -run '^TestConsole_Screenshots$$' -count=1

# The version at the top of the changes, which must not be tagged yet.
VERSION = $(shell sed -n 's/^## \([0-9.]*\)$$/\1/p' deploy/docs/CHANGELOG.md | head -n 1)

release-data: postgres ## what this version writes, into deploy/releases, for the tests of later versions; before its tag
	@test -n "$(VERSION)" && ! git rev-parse --quiet --verify refs/tags/v$(VERSION) >/dev/null || \
		{ echo "$(VERSION) is tagged: its data stay as they are, and the changes begin with the next version"; exit 1; }
	mkdir -p deploy/releases/$(VERSION)
	LEADLOG_TEST_RELEASE=$(CURDIR)/deploy/releases/$(VERSION) $(WITHPG) -- \
		go test -count=1 -run '^TestReleases_' ./eventstore/event ./deploy ./cmd/leadlog/systemtest

chaos: postgres ## kills the service and its databases under load, ROUNDS times (100): is anything lost, or out of order? minutes
	LEADLOG_TEST_CHAOS_ROUNDS=$(or $(ROUNDS),100) $(WITHPG) -- \
		go test ./cmd/leadlog/systemtest -run 'TestChaos|TestLinearizable|^TestOnEventStoreDB$$/linearizable' -count=1 -v -timeout 60m

restart-test: postgres ## restarts two processes behind a balancer in turn, under load, ROUNDS times (12): does a request fail?
	LEADLOG_TEST_RESTARTS=$(or $(ROUNDS),12) $(WITHPG) -- go test ./cmd/leadlog/systemtest -run TestRestart -count=1 -v -timeout 30m

bench: postgres messagedb ## leadlog beside plain rows, on a PostgreSQL of its own; half an hour in which nothing else should run
	go build -o bin/leadlog ./cmd/leadlog
	go build -o bin/leadbench ./cmd/leadbench
	bin/leadbench captures --leadlog bin/leadlog --duration 3s --accounts 5000
	bin/leadbench append --duration 4s --message-db bin/messagedb/node_modules/@eventide/message-db/database
	bin/leadbench intake --leadlog bin/leadlog --duration 1s
	bin/leadbench hostile --leadlog bin/leadlog --rounds 1
	bin/leadbench webhooks --leadlog bin/leadlog --rounds 1
	bin/leadbench replay --leadlog bin/leadlog --rounds 1
	bin/leadbench feed --leadlog bin/leadlog --rounds 1
	bin/leadbench reads --leadlog bin/leadlog

# The time for each target, or with an x the number of inputs. Inputs that fail are saved in testdata/fuzz.
FUZZTIME := 60s

# -fuzz=Fuzz builds the targets with coverage instrumentation, which guides the search. Without it, inputs are random, and the build uses the
# packages that the tests have compiled already.
FUZZBUILD := -fuzz=Fuzz

fuzz: ## every fuzz target in turn, for FUZZTIME each
	@built=$$(mktemp -d); trap 'rm -rf "$$built"' EXIT; \
	for package in $$(grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		go test -c $(FUZZBUILD) -ldflags='-s -w' -o "$$built/test" "$$package" || exit 1; \
		for target in $$(grep -hoE '^func Fuzz[[:alnum:]_]+' "$$package"/*_test.go | cut -d ' ' -f 2); do \
			echo "$$package $$target"; \
			(cd "$$package" && "$$built/test" -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) \
				-test.fuzzminimizetime 200x -test.fuzzcachedir "$$(go env GOCACHE)/fuzz/$$package") || exit 1; done; done

lint: ## formatting, vet, staticcheck, workflows, go.mod, known vulnerabilities
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...
	go run $(ACTIONLINT)
	go mod tidy -diff
	@GOVULNCHECK=$(GOVULNCHECK) deploy/pgdev/install/vulncheck

postgres: ## installs PostgreSQL's programs, unless they are there
	@go build -o /dev/null ./deploy/pgdev/withpg
	@$(WITHPG) -check 2>/dev/null || { deploy/pgdev/install/postgres && $(WITHPG) -check; }

INSTALL := deploy/pgdev/install/packages

pgbouncer:
	@command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || $(INSTALL) pgbouncer pgbouncer pgbouncer

# The race detector needs a C compiler everywhere but on macOS and Windows.
cc:
	@case "$$(go env GOOS)" in darwin | windows) ;; \
	*) command -v "$$(go env CC | cut -d ' ' -f 1)" >/dev/null || $(INSTALL) "A C compiler" "gcc libc6-dev" "" ;; esac

# Tests run the quick starts as printed: in a shell, in JavaScript and in Python. One test verifies signatures with the JavaScript library of
# Standard Webhooks.
curl:
	@command -v curl >/dev/null || $(INSTALL) curl curl curl

node:
	@command -v node >/dev/null && command -v npm >/dev/null || $(INSTALL) "Node.js with npm" "nodejs npm" node

python:
	@command -v python3 >/dev/null || $(INSTALL) "Python 3" python3 python

# One test works with the console in a browser.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
		$(INSTALL) Chromium "chromium fonts-dejavu-core" "--cask chromium"

# The alert rules are tested by Prometheus's own tool.
promtool:
	@command -v promtool >/dev/null || [ -x bin/promtool ] || deploy/pgdev/install/promtool bin

# make bench compares appends to the log with message-db. Its version and hash are in the lock file.
messagedb: node
	@[ -d bin/messagedb/node_modules ] || { mkdir -p bin/messagedb && cp cmd/leadbench/messagedb/package*.json bin/messagedb && \
		npm ci --prefix bin/messagedb --ignore-scripts --no-audit --no-fund --loglevel=error; }
