# make check passes every test; the other targets are parts of it, or longer than it.

# Each module keeps its own versions, also where make workspace has written a go.work.
export GOWORK := off

GO       ?= go
FUZZTIME ?= 1m
VIGIL_SOAK ?= 30m
HOURS    ?= 1
VIGIL_HANGS ?= 10

.DEFAULT_GOAL := build

help: ## these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-24s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: archive-bench archive-test hangs sicknesses help build test race processes lint fuzz bench check crash damage soak simulate replays planted kubernetes helm-test kubernetes-integration node-client clean cluster workspace

build: ## bin/vigil
	$(GO) build -o bin/ ./cmd/...

test: ## unit, scenario and crash tests of the server, the programs and the client
	$(GO) test ./... && $(GO) -C client test ./...

race: ## the same under the race detector
	$(GO) test -race ./... && $(GO) -C client test -race ./...

processes: ## the tests with processes and stock clients, in full
	$(GO) -C test test -count 1 -timeout 1h ./...

lint: ## formatting, vet, staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	for m in . client sim bucket test test/proc test/kubernetes/embedded tools; do (cd $$m && $(GO) vet ./... && $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...) || exit 1; done

workspace: ## go.work for an editor, which then finds all modules, which make and ./check do not use
	rm -f go.work go.work.sum
	GOWORK= $(GO) work init . ./client ./sim ./bucket ./test ./test/proc ./tools

check: ## everything that CI runs
	./check

fuzz: ## every fuzz target for FUZZTIME each
	@set -e; for m in . client; do for p in $$($(GO) -C $$m list ./...); do \
		for f in $$($(GO) -C $$m test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
			echo "== $$p $$f"; $(GO) -C $$m test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$p; \
		done; done; done

.PHONY: release release-test
release: ## packages, archives and images of VERSION, like 1.2.3, in dist/VERSION; PLATFORM=linux/amd64 for one platform only, in minutes
	@$(GO) build -C tools -o ../bin/release ./release && bin/release -version "$(VERSION)" -platform "$(PLATFORM)"

release-test: ## a release from two clones must be the same bytes; root installs, upgrades and removes the package in a Debian
	$(GO) -C tools test -count 1 -timeout 2h -v ./release

.PHONY: pgo
pgo: ## a new profile of a member under load, and bin/vigil built with it; plain builds do not use it
	rm -rf bin/profiles
	$(GO) -C tools run ./bench -b none -rounds 1 -tmpfs -profile $(CURDIR)/bin/profiles \
		-scenario 'put-pipelined,put-open,put-sequential,cas-txn,get-*,range-500,watch-1000-at-100'
	$(GO) tool pprof -proto bin/profiles/*.pprof > cmd/vigil/vigil.pgo
	$(GO) build -pgo=cmd/vigil/vigil.pgo -o bin/ ./cmd/vigil

crash: ## five thousand seeded crashes of a whole member, five hundred stores that are copied while they crash, and fifty kills of the real process
	VIGIL_CRASHES=5000 $(GO) test -timeout 2h -run Crash ./internal/store/wal ./internal/store/history ./internal/member/replica
	VIGIL_ROUNDS=500 $(GO) test -timeout 2h -run Copies ./internal/store/mvcc
	cd test && VIGIL_KILLS=50 $(GO) test -count 1 -timeout 30m -run Kill ./kill

damage: ## every single bit of a small data directory, its files cut at every length, and calls of the client at every byte (a snapshot at every hundredth)
	VIGIL_EVERY_BIT=1 VIGIL_CUT_STRIDE=1 GOGC=800 $(GO) test -timeout 2h -run 'EveryFlippedBit|WrongFiles' ./internal/store/wal ./internal/member/replica
	VIGIL_HISTORY_FLIP_STRIDE=1 VIGIL_HISTORY_SERVED_STEP=1 GOGC=800 $(GO) test -timeout 2h -run Flips ./internal/store/history
	VIGIL_CUTS=all $(GO) -C client test -timeout 1h -run Cut .

archive-bench: ## an archive of a million keys with five million revisions: time and memory of restore, of a restore of keys, and of verify
	VIGIL_LARGE_ARCHIVE=1000000 $(GO) test -count 1 -timeout 0 -run 'LargeArchive$$' -v ./internal/offline/archived

archive-test: ## 2,000 writes a second for ten minutes to three members that archive into an object storage of S3, which are killed, and whose storage is away; then they are restored; minutes to build
	cd test && VIGIL_ARCHIVE_TEST=10m VIGIL_ARCHIVE_S3=1 $(GO) test -count 1 -timeout 0 -run 'TestArchive$$' -v ./cluster

soak: ## three members under every fault in turn, with clients whose records are checked, for VIGIL_SOAK; root gives each member a network namespace, VIGIL_NETNS=1 demands that
	cd test && VIGIL_SOAK=$(VIGIL_SOAK) $(GO) test -count 1 -timeout 0 -run Soak -v ./chaos

hangs: ## disks of a leader that hang, are slow and full, VIGIL_HANGS times each, of a stock etcd and of Vigil: time to a new leader, keep-alives lost, leases ended; half an hour, needs root
	VIGIL_HANGS=$(VIGIL_HANGS) $(GO) -C test test -count 1 -timeout 0 -run 'Compare$$' -v ./hang

sicknesses: ## some thirty sicknesses of a cluster, and test/sick/testdata/views.md with what each view says of them; minutes, needs root
	$(GO) -C test test -count 1 -timeout 30m -parallel 4 -run Sicknesses -v ./sick -rewrite

simulate: ## fresh seeds of clusters in a simulated world, for HOURS
	cd sim && $(GO) run ./cmd/simulate -hours $(HOURS)

replays: ## a hundred replays of ten minutes of a quiet cluster, and of a plan with many faults; all hashes must be equal
	cd sim && $(GO) run ./cmd/simulate -profile quiet -minutes 10 -replays 100
	cd sim && $(GO) run ./cmd/simulate -profile elections -replays 100

planted: ## mistakes planted in the members and clients, which the simulation must find
	cd sim && $(GO) run ./cmd/simulate -planted all -seed 800001 -seeds 24

helm-test: ## the Helm chart: Helm's linter, the types of the API, members with the pods' arguments; takes minutes to build
	$(GO) -C test test -count 1 -timeout 20m ./helm

kubernetes: ## Kubernetes on Vigil: its own tests of its storage, and a real API server; takes minutes to build
	cd test/kubernetes && $(GO) test -count 1 -timeout 1h -v ./...

kubernetes-integration: ## integration tests of Kubernetes on Vigil; half an hour
	cd test/kubernetes && VIGIL_KUBERNETES_INTEGRATION=all $(GO) test -count 1 -timeout 3h -v -run Integration ./...

node-client: ## the etcd client of Node against Vigil, and gRPC's interoperability cases with the client of Node; npm installs both
	cd test/node && npm ci --ignore-scripts --no-audit --no-fund
	cd test && $(GO) test -count 1 -v ./node
	$(GO) -C test test -count 1 -v -run Node ./interop

.PHONY: console console-test console-large
console: ## the pages of the console, from console/src into internal/edge/console/assets
	$(GO) -C tools run ./console

console-test: ## the console in headless Chromium; VIGIL_SCREENSHOTS=$$PWD/docs/console writes the pictures of the documents
	VIGIL_BROWSER=1 $(GO) -C test test -count 1 -timeout 30m -v ./console

console-large: ## the same with a million keys and 1,000 events a second: time to first paint, memory of the tab
	VIGIL_BROWSER=1 VIGIL_LARGE=1 $(GO) -C test test -count 1 -timeout 1h -run "Large|Tail" -v ./console

.PHONY: bucket-test bucket-azure-test
bucket-test: ## vigil-bucket, and an archive of a member, with object storages that speak S3 and Google Cloud Storage's API; takes minutes to build
	$(GO) -C bucket test -count 1 ./...
	$(GO) -C test test -count 1 -timeout 30m -v ./cloudtest

bucket-azure-test: ## the same with Azurite, which speaks Azure Blob's API; npm installs it, and Node runs it
	cd test/cloudtest/azurite && npm ci --ignore-scripts --no-audit --no-fund
	VIGIL_AZURITE=1 $(GO) -C test test -count 1 -timeout 30m -v -run '/^azblob$$' ./cloudtest

bench: ## Vigil compared with etcd; tools/bench/README.md explains the result
	$(GO) -C tools run ./bench

cluster: build ## three members on loopback until Ctrl-C, and how to kill and restart each; data in ./cluster.data
	scripts/cluster.sh

clean: ## removes bin
	rm -rf bin
