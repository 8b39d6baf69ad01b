# Muster. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations
export GOFLAGS := -buildvcs=false -trimpath
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION)
SERVICES := scripts/with-services

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 16

.PHONY: build
build: build-platform build-more ## bin/muster, bin/musterd, bin/muster-agent, bin/muster-guest, bin/muster-mount, the demo job and the fake NVML library

# What `make demo` needs to start.
.PHONY: build-platform
build-platform: toolchain
	@mkdir -p bin
	CGO_ENABLED=0 go build -ldflags '$(LDFLAGS)' -o bin/musterd ./cmd/musterd
	CGO_ENABLED=1 go build -ldflags '$(LDFLAGS) -extldflags=-Wl,-z,lazy' -o bin/muster-agent ./cmd/muster-agent
	CGO_ENABLED=0 go build -ldflags '-s -w $(LDFLAGS)' -o bin/muster-guest ./cmd/muster-guest
	CGO_ENABLED=0 go build -ldflags '-s -w' -o bin/muster-demo-job ./cmd/muster-demo-job
	@$(MAKE) --no-print-directory bin/fakenvml/libnvidia-ml.so.1

# The command line, and the program that mounts buckets: a host offers these mounts within a minute.
.PHONY: build-more
build-more: toolchain
	@mkdir -p bin
	CGO_ENABLED=0 go build -ldflags '-s -w $(LDFLAGS)' -o bin/muster ./cmd/muster
	CGO_ENABLED=0 go build -C cmd/muster-mount -ldflags '-s -w' -o $(CURDIR)/bin/muster-mount .

bin/fakenvml/libnvidia-ml.so.1: $(wildcard agent/machine/gpu/fakenvml/*.[ch]) agent/machine/gpu/fakenvml/build.sh go.mod
	agent/machine/gpu/fakenvml/build.sh $@

.PHONY: toolchain
toolchain:
	@scripts/setup check

.PHONY: generate
generate: ## regenerate sqlc and templ output (committed)
	@scripts/generate

.PHONY: static
static: ## vendor the browser's assets again, at the pinned versions
	scripts/static

.PHONY: demo
demo: ## set up, build, start the whole platform here and play a renter's journey (DEMO_EXIT=1 ends after it)
	@scripts/demo

.PHONY: check
check: toolchain ## build, lint of what changed, and the tests that need neither root nor Docker, a database or a browser
	@scripts/test check

.PHONY: test
test: ## everything CI runs; installs and starts what it needs
	@scripts/setup build run test
	@$(SERVICES) --docker --postgres -- scripts/test

.PHONY: test-race
test-race: ## every test of `make test` with the race detector
	@scripts/setup build run test
	@$(SERVICES) --docker --postgres -- scripts/test race

.PHONY: test-full
test-full: test-race test-deep test-long test-matrix test-data test-stores test-net test-update test-torch test-jupyter test-gvisor test-disk test-shared test-docker test-machine ## what takes longer too: the race detector everywhere, the kill matrix, kills of what keeps volumes, hosts behind routers, PyTorch trainings, a virtual machine (hours)

.PHONY: test-deep
test-deep: build ## the random tests of `make test`, longer: 10⁷ rented seconds, 20,000 gangs and requests, 3,000 visits, and axe in every width and theme
	@scripts/setup build run test
	@$(SERVICES) --docker --postgres -- env MUSTER_BIN=$(CURDIR)/bin MUSTER_PROOF_SECONDS=10000000 MUSTER_PROOF_GANGS=20000 \
	  MUSTER_FUZZ_REQUESTS=20000 MUSTER_FUZZ_VISITS=3000 MUSTER_TEST_LOOKS=all go test -p 2 -count=1 -timeout 60m \
	  ./internal/testing/model ./internal/serve/api ./web ./internal/testing/e2e \
	  -run 'TestEveryBillIsTheOracles|TestEveryGangIsTheOracles|TestRandom|TestEveryPageIsAccessible'

LONG ?= TestAReplicaAndANATSServerAreKilledUnderLoad|TestRanksResumeOnAnotherHost|TestADataSetIsReadByEightRanks
.PHONY: test-long
test-long: build ## replicas on an external NATS cluster, one of each killed under load; ranks that resume on another host; eight ranks that read a data set (ten minutes)
	@scripts/setup build run
	@$(SERVICES) --docker --postgres -- env MUSTER_BIN=$(CURDIR)/bin go test -tags long ./internal/testing/e2e -run '$(LONG)' -count=1 -v -timeout 30m

MATRIX ?= TestMatrix
.PHONY: test-matrix
test-matrix: build ## every part is killed in every phase of a rental; MATRIX=TestMatrix/agent for one part
	@scripts/setup build run
	@$(SERVICES) --docker -- env MUSTER_BIN=$(CURDIR)/bin go test -tags matrix ./internal/testing/e2e -run '$(MATRIX)' -count=1 -v -timeout 55m

.PHONY: test-data
test-data: build ## 1000 random kills of what keeps volumes (MUSTER_TEST_KILLS: others), 100 of a bucket's mount, and 20 resumes of four ranks on other hosts (MUSTER_TEST_RESUMES: others)
	@scripts/setup build run
	@$(SERVICES) --docker --postgres -- env MUSTER_TEST_KILLS=$${MUSTER_TEST_KILLS:-1000} go test ./internal/testing/datakills -run TestRandomKills -count=1 -v -timeout 3h
	@env MUSTER_BIN=$(CURDIR)/bin MUSTER_TEST_KILLS=100 go test ./agent/storage/bucket -count=1 -v -timeout 20m
	@$(SERVICES) --docker -- env MUSTER_BIN=$(CURDIR)/bin MUSTER_TEST_RESUMES=$${MUSTER_TEST_RESUMES:-20} go test -tags long ./internal/testing/e2e -run TestRanksResumeOnAnotherHost -count=1 -v -timeout 2h

STORES ?= TestAVolumeFollowsToAnotherHost|TestAVolumeIsReadOnDemand|TestResultsToOnesOwnBucket
.PHONY: test-stores
test-stores: build ## volumes and buckets in the distribution's Ceph (radosgw): what a store must do, mounts, kills, rented clusters (ten minutes)
	@scripts/setup build run ceph
	@$(SERVICES) --docker --postgres -- go run ./internal/testing/s3test/withceph env MUSTER_BIN=$(CURDIR)/bin scripts/test-stores '$(STORES)'

.PHONY: test-update
test-update: build ## an agent is replaced by a newer one, and goes back from one that does not work, under a running job (builds two agents)
	@scripts/setup build run
	@$(SERVICES) --docker -- env MUSTER_BIN=$(CURDIR)/bin go test -tags update ./internal/testing/e2e -run TestAnAgentReplacesItself -count=1 -v -timeout 20m

TORCH ?= /var/cache/muster/torch.tar
TORCH_PACKAGES = python3-torch python3-numpy openmpi-bin python3-mpi4py
TORCH2 ?= /var/cache/muster/torch2.tar
.PHONY: test-torch
test-torch: build ## the examples of docs/launch (PyTorch, torchrun, mpirun, a training that goes on after a host is lost) on rented clusters; makes two images of 1 GB once
	@scripts/setup build run
	@scripts/debian-image $(TORCH) $(TORCH_PACKAGES)
	@SUITE=trixie scripts/debian-image $(TORCH2) python3-torch python3-numpy
	@$(SERVICES) --docker -- env MUSTER_BIN=$(CURDIR)/bin MUSTER_TEST_TORCH=$(TORCH) MUSTER_TEST_TORCH2=$(TORCH2) go test -tags torch ./internal/testing/e2e -run 'TestLaunchers|TestATraining' -count=1 -v -timeout 20m

JUPYTER ?= /var/cache/muster/jupyter.tar
.PHONY: test-jupyter
test-jupyter: build ## Jupyter on a rented rank, used in a real browser through the port's link; makes an image of 400 MB once
	@scripts/setup build run test
	@scripts/debian-image $(JUPYTER) jupyter-notebook python3-ipykernel
	@$(SERVICES) --docker -- env MUSTER_BIN=$(CURDIR)/bin MUSTER_TEST_JUPYTER=$(JUPYTER) go test -tags jupyter ./internal/testing/e2e -run TestJupyterInABrowser -count=1 -v -timeout 20m

.PHONY: test-gvisor
test-gvisor: build ## nodes of two hosts under the distribution's gVisor (runsc): a training, a shell
	@scripts/setup build run gvisor
	@$(SERVICES) --postgres -- env MUSTER_BIN=$(CURDIR)/bin go test -tags gvisor ./internal/testing/e2e -run TestNodesUnderGVisor -count=1 -v -timeout 15m

.PHONY: test-disk
test-disk: ## a node that fills its disk, and scratches on btrfs and XFS, on disks of the tests' own (root; three minutes)
	@scripts/setup build run disk
	@go test -tags disk ./agent/redteam ./agent/storage/scratch -run 'TestADiskFiller|TestScratchOnOtherFileSystems' -count=1 -v -timeout 10m

ENGINES ?= 20.10-graph 26-graph 26-containerd 28-graph 28-containerd 29-graph 29-containerd
.PHONY: test-docker
test-docker: build ## the agent on Docker 20.10, 26, 28 and 29 with both image stores, and a rental of two nodes; ENGINES=29-containerd for one
	@scripts/setup build run
	@$(SERVICES) --postgres -- env MUSTER_BIN=$(CURDIR)/bin scripts/test-docker $(ENGINES)

SHARED ?= TestNFS|TestCephFS|TestGlusterFS|TestContainersOn
.PHONY: test-shared
test-shared: build ## shared file systems on real servers: CephFS, Gluster, NFS in a Linux that runs as a process, and Docker's containers on CephFS and Gluster (root; ten minutes)
	@scripts/setup build run ceph shared
	@$(SERVICES) --docker -- env MUSTER_BIN=$(CURDIR)/bin go test -p 1 -tags shared ./agent/storage/sharedfs ./agent -run '$(SHARED)' -count=1 -v -timeout 30m

.PHONY: test-gpu
test-gpu: ## what a machine with NVIDIA GPUs shows of the agent, into OUT or docs/hardware/MODEL, with programs in bin/ that were built elsewhere if there is no Go; without a GPU it says so and runs on simulated ones
	@if command -v go >/dev/null || ! [ -x bin/muster-agent ]; then $(MAKE) --no-print-directory gpu-programs; fi
	@scripts/test-gpu bin

# What test-gpu runs: bin/muster-agent, bin/gpuload and bin/gpu.test can be carried to a machine without Go.
.PHONY: gpu-programs
gpu-programs: build
	@gcc -std=gnu11 -Wall -O2 -o bin/gpuload agent/machine/gpu/realgpu/testdata/load.c -ldl
	@go test -c -tags device -o bin/gpu.test ./agent/machine/gpu/realgpu

NET ?= TestNet
.PHONY: test-net
test-net: build ## whole hosts behind routers of their own: paths, cut and bad lines, kills, replacement, PyTorch; NET=TestNetIPv6 for one test
	@scripts/setup build run
	@scripts/debian-image $(TORCH) $(TORCH_PACKAGES)
	@$(SERVICES) --postgres -- env MUSTER_BIN=$(CURDIR)/bin MUSTER_TEST_TORCH=$(TORCH) go test -tags net,torch ./internal/testing/e2e -run '$(NET)' -count=1 -v -timeout 90m

MACHINE ?= /var/cache/muster/machine
RDMA ?= /var/cache/muster/rdma.tar
MACHINES ?= TestAMachine|TestMachinesWithRDMA
.PHONY: test-machine
test-machine: build ## a release on virtual machines with Debian's own kernel and systemd: unit, kernel WireGuard, disk quota, NUMA, RDMA (makes images of 1.2 GB once)
	@scripts/setup build run machine
	@scripts/machine-image $(MACHINE)
	@scripts/debian-image $(RDMA) ibverbs-utils ibverbs-providers openmpi-bin python3-mpi4py
	@openssl genpkey -algorithm ed25519 -out bin/machine.key
	@MUSTER_RELEASE_KEY=bin/machine.key MUSTER_RELEASE_OUT=bin/machine scripts/release v0.0.1
	@$(SERVICES) --postgres -- env MUSTER_BIN=$(CURDIR)/bin MUSTER_TEST_MACHINE=$(MACHINE) MUSTER_TEST_RELEASE=$(CURDIR)/bin/machine MUSTER_TEST_RDMA=$(RDMA) go test -tags machine ./internal/testing/e2e -run '$(MACHINES)' -count=1 -v -timeout 90m

.PHONY: soak
soak: ## the proof of the money over a hundred million rented seconds (MUSTER_PROOF_SECONDS: others) two million gangs (MUSTER_PROOF_GANGS) and 20,000 steps of quotas (MUSTER_PROOF_QUOTAS), with kills (minutes)
	@scripts/setup build run
	@$(SERVICES) --postgres -- env MUSTER_PROOF_SECONDS=$${MUSTER_PROOF_SECONDS:-100000000} MUSTER_PROOF_GANGS=$${MUSTER_PROOF_GANGS:-2000000} MUSTER_PROOF_ORDERS=$${MUSTER_PROOF_ORDERS:-1000} MUSTER_PROOF_QUOTAS=$${MUSTER_PROOF_QUOTAS:-20000} go test ./internal/testing/model ./internal/fleet/cluster -run 'TestEveryBillIsTheOracles|TestEveryGangIsTheOracles|TestAGangIsTheSameInAnyOrder|TestKilledWorkersAndDatabases|TestQuota_IsTheOracles' -count=1 -v -timeout 4h

.PHONY: fuzz
fuzz: ## a million random requests to the API, 100,000 visits of pages and forms (MUSTER_FUZZ_REQUESTS, MUSTER_FUZZ_VISITS: others), and a minute for each decoder of stored bytes (FUZZ_TIME)
	@scripts/setup build run
	@$(SERVICES) --postgres -- env MUSTER_FUZZ_REQUESTS=$${MUSTER_FUZZ_REQUESTS:-1000000} MUSTER_FUZZ_VISITS=$${MUSTER_FUZZ_VISITS:-100000} go test ./internal/serve/api ./web -run 'TestRandom' -count=1 -v -timeout 4h
	@grep -ro --include='*_test.go' 'func Fuzz[A-Za-z]*' internal/data agent/storage/volume | while IFS=: read -r file name; do \
	  echo "==> $$file $$name" && go test "./$${file%/*}" -run '^$$' -fuzz "^$${name#func }\$$" -fuzztime $${FUZZ_TIME:-1m} || exit 1; \
	done

.PHONY: mutants
mutants: ## break the rules of money one by one and show that a test notices each (see docs/evidence/proof.md)
	@scripts/setup build run
	@$(SERVICES) --postgres -- go run ./internal/testing/model/mutants

.PHONY: lint
lint: ## formatting, vet, staticcheck, generated code is fresh
	@scripts/lint full

.PHONY: bench
bench: build ## the benchmarks of bench/ beside their baselines, one table (GOALS=1,5,9: these alone)
	@scripts/setup build run bench
	@$(SERVICES) --docker --postgres --durable -- env MUSTER_BIN=$(CURDIR)/bin go run ./bench -goals '$(GOALS)'

.PHONY: test-scale
test-scale: ## a simulated fleet (HOSTS=8000) that connects at once, reports and comes back, beside a bare NATS server
	@scripts/setup build run
	@$(SERVICES) --postgres --durable -- env MUSTER_FLEET_HOSTS=$${HOSTS:-8000} go run ./bench -goals 11

.PHONY: screenshots
screenshots: build ## the pictures of docs/screenshots: every page, wide and narrow, light and dark
	@scripts/setup build run test
	@$(SERVICES) --docker -- env MUSTER_BIN=$(CURDIR)/bin MUSTER_TEST_SHOTS=$(CURDIR)/docs/screenshots go test ./internal/testing/e2e -run "InABrowser|TestEveryPageIsAccessible" -count=1

.PHONY: test-builds
test-builds: toolchain ## the muster command builds without cgo for Linux, macOS and Windows, amd64 and arm64
	@for os in linux darwin windows; do for arch in amd64 arm64; do \
	  echo "==> $$os/$$arch" && CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go build -o /dev/null ./cmd/muster || exit 1; \
	done; done

.PHONY: release
release: toolchain ## the archives of this version in bin/release, with SHA256SUMS (MUSTER_RELEASE_KEY=FILE signs them)
	@scripts/release '$(VERSION)'

.PHONY: clean
clean: ## remove what was built
	rm -rf bin bench/out
