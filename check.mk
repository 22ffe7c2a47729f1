# The steps of ./check. Those that depend on another one wait for it only to share the processors.

# Each module keeps its own versions, also where make workspace has written a go.work.
export GOWORK := off
# Programs are released without C, so they are tested without C. Only the race detector needs it.
export CGO_ENABLED := 0
# Under the race detector a program waits for a second at its end unless this is set.
export GORACE := atexit_sleep_ms=20

# A package takes up to two minutes on an idle machine. Timeouts are for tests that hang.
TEST  := test -vet=off -timeout 20m
BEGAN := $(shell date +%s)
step   = @printf '\n== %s (after %d s)\n' '$(1)' $$(($$(date +%s) - $(BEGAN)))
# The packages of the module test without those that depend on Prometheus, object storages, Helm or a
# browser, which take minutes to compile.
LIGHT  = $$(go -C test list ./... | grep -vE '/(alerts|cloudtest|console|helm|interop)$$')

.PHONY: passed format programs processes race others lint norace simulation bench
passed: format processes race others lint norace simulation bench
	$(call step,all passed)

format:
	$(call step,gofmt)
	@files=$$(gofmt -l .); [ -z "$$files" ] || { printf 'run gofmt -w on:\n%s\n' "$$files"; exit 1; }

programs: format
	$(call step,the programs that the tests with processes share)
	go -C test run ./cmd/programs

processes: programs # the packages that take longest come first
	$(call step,stock clients and a stock etcd next to Vigil)
	VIGIL_BUILT=1 go -C test $(TEST) -short -p 4 -parallel 4 \
		./cluster ./vigilctl ./diff ./disk ./config ./library $(LIGHT)

race: format
	$(call step,unit and scenario and crash tests with the race detector)
	CGO_ENABLED=1 go $(TEST) -race -short -p 3 -skip "$$(scripts/norace)" ./...
	CGO_ENABLED=1 go -C client $(TEST) -race -short ./...

norace: race
	$(call step,tests that are marked norace)
	go $(TEST) -short -run "$$(scripts/norace)" $$(scripts/norace -packages)

others: race programs
	$(call step,alerts and the dashboard with the engine of Prometheus)
	go -C test $(TEST) ./alerts
	$(call step,the packages of a release)
	go -C tools $(TEST) -short ./release
	$(call step,the interoperability cases of gRPC)
	go -C test $(TEST) ./interop
	$(call step,the console in Chromium; its pages are built from its sources)
	go -C tools $(TEST) ./console
	VIGIL_BUILT=1 VIGIL_BROWSER=1 go -C test $(TEST) -short ./console

# make lint has all modules. test/proc is checked with the versions of test, which are compiled anyway.
lint: norace
	$(call step,vet and lint)
	GOBIN=$$PWD/bin go install honnef.co/go/tools/cmd/staticcheck@v0.8.2
	for m in . client sim; do \
		go -C $$m vet ./... && (cd $$m && GOGC=400 $$OLDPWD/bin/staticcheck ./...) || exit 1; done
	go -C test vet $(LIGHT) vigil/test/proc
	cd test && GOGC=400 ../bin/staticcheck $(LIGHT) vigil/test/proc

simulation: lint # make simulate and make planted have more seeds and all planted mistakes
	$(call step,the simulation: its own tests; plans that once failed; planted mistakes; fresh seeds)
	go -C sim $(TEST) ./...
	cd sim && go run ./cmd/simulate -corpus corpus
	cd sim && go run ./cmd/simulate -corpus corpus -planted skipped-event,client-skips,hung-leader
	cd sim && go run ./cmd/simulate -hours 0.0167

bench: simulation
	$(call step,the tests of the benchmark)
	go -C tools $(TEST) ./bench/...
