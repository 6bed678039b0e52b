# searchloop: make is the scheduler, manifests are the targets.
#   make demo            the whole loop on this machine
#   make help            targets and variables
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.SECONDEXPANSION:
.SUFFIXES:
# Every manifest is kept, also those that only a later target asked for.
.PRECIOUS: data/questions/%/manifest.json data/lens/%/manifest.json data/corpora/%/encoder/manifest.json \
  $(foreach d,text images,$(foreach s,passages vectors index,data/corpora/%/$(d)/$(s)/manifest.json))

# ---- variables a user sets -------------------------------------------------
RECIPE     ?= demo
RUN        ?= $(RECIPE)
EPOCH      ?= 1
BENCH      ?= demo
TRAINSET   ?= demo-train
CORPUS     ?= demo
SHARDS     ?= 1
LIMIT      ?=
POLICY     ?=
POLICY_URL ?=
POLICY_MODEL ?=
JUDGE_URL  ?=
JUDGE_MODEL ?=
GALLERY    ?=
PAGES      ?=
PUBLISHED  ?=
CACHE      ?= data/cache
RECORD     ?=
REPLAY     ?=
FROZEN     ?=
MAX_COST   ?=
ENCODER    ?=
ENCODER_URL ?=
ENCODER_MODEL ?=
ENCODER_IMAGES ?=
VECTORS    ?= fp32
EMBED_FLAGS ?=
INDEX_FLAGS ?=
SET        ?=
SHARED     ?= ../shared/data
RAW        ?= data/raw
EPOCHS     ?= 4
KEEP_LAST  ?=
KEEP_BEST  ?= 1
KEEP_BY    ?=
TENSORBOARD ?=
TRIES      ?= 8
DEVICE      ?=
PIPELINE   ?=
SYNTH      ?= $(if $(filter vision-deepresearch,$(PIPELINE)),synth-vision,synth)
NAME       ?= synth
CONCEPTS   ?=
AGAINST    ?=
LABELS     ?=
WRITER_URL ?=
WRITER_MODEL ?=
CHECKER_URL ?=
CHECKER_MODEL ?=
TEACHER_URL ?=
TEACHER_MODEL ?=
BASELINE   ?=
MAX_DROP   ?=
EXPORT     ?=
RUNS       ?=
JOBFLAGS   ?=

# ---- building --------------------------------------------------------------
# SIMD kernels need the experiment; a plain "go build ./..." works with generic
# loops. Without cgo every job is one static binary; FAISS and CUDA, below, need cgo.
export GOEXPERIMENT := simd
export CGO_ENABLED  := 0
GO      ?= go
# nodynamic: AVIF is decoded by our own binary, not by a library of the system.
TAGS    := -tags nodynamic
# Where the CUDA toolkit's headers are, the programs can use a GPU. They start
# without one all the same: driver and libraries are opened when asked for.
CUDA_HOME ?= /usr/local/cuda
ifneq ($(wildcard $(CUDA_HOME)/include/cuda.h),)
CUDA       := CGO_ENABLED=1 CGO_CFLAGS="-O2 -I$(CURDIR)/internal/cuda/include -I$(CUDA_HOME)/include" CUDA_HOME=$(CUDA_HOME)
CUDA_TAGS  := -tags nodynamic,cuda
endif
# Where FAISS's headers are, the programs know its kinds of index too, and need the
# shared libraries libopenblas, libgomp, libstdc++ and libc to start. "make build
# FAISS=" leaves it out.
FAISS   ?= $(and $(wildcard /usr/include/faiss/c_api/Index_c.h),$(shell command -v $(CXX)))
comma   := ,
JOBS    := $(notdir $(wildcard jobs/*))
STAGES  := corpus eval indexer internal jobs rollout synth train
SOURCES := $(shell find $(STAGES) -name '*.go' -o -name '*.html' -o -name '*.css' -o -name '*.js' -o -name '*.cu' -o -name '*.cuh' -o -name '*.[chS]' -o -name '*.cpp' 2>/dev/null) go.mod go.sum
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)

.PHONY: all build demo test test-kill test-fault soak vuln licenses lint fuzz test-faiss cuda-check test-gpu bench-gpu clean clean-data help
all: build
build: bin/.built
bin/.built: $(SOURCES)
	@mkdir -p bin
	$(CUDA) $(if $(FAISS),CGO_ENABLED=1) $(GO) build $(or $(CUDA_TAGS),$(TAGS))$(if $(FAISS),$(comma)faiss) -ldflags '-X searchloop/internal/job.Version=$(VERSION)' -o bin/ ./jobs/...
	@touch $@

include pipelines/launch.mk
include pipelines/sources.mk
include pipelines/index.mk
include pipelines/run.mk
include pipelines/eval.mk
include pipelines/curate.mk
include pipelines/compare.mk
include pipelines/bench.mk

# ---- the demo --------------------------------------------------------------
# Two jobs at a time: while an epoch's policy is evaluated, the next epoch begins.
demo: build
	@start=$$(date +%s); \
	$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j2) RECIPE=demo RUN=demo BENCH=demo EPOCH=$(EPOCHS) loop; \
	bin/report --run runs/demo --bench demo --out runs/demo/report.html --summary runs/demo/summary.json --seconds $$(( $$(date +%s) - start ))

# ---- quality ---------------------------------------------------------------
test: lint
	$(GO) test $(TAGS) ./...
# A run of a thousand trajectories is killed twenty times at random.
test-kill:
	SEARCHLOOP_LONG=1 $(GO) test $(TAGS) -v -count 1 -run TestKilledAtRandom ./rollout
# Every numbered fault, each with its tests: a table, and build/fault.json.
test-fault: build
	$(GO) run $(TAGS) ./internal/fault/suite --out build/fault.json $(if $(FAULTS),--only $(FAULTS))
# The whole loop for MINUTES, killed at random, with servers that fail: the data must
# be that of a quiet run. build/soak.log tells.
MINUTES ?= 30
soak: build
	SEARCHLOOP_SOAK=$(MINUTES) $(GO) test $(TAGS) -v -count 1 -timeout 0 -run TestSoak ./pipelines
# Known vulnerabilities of what is compiled in: asks the Go vulnerability database. It
# fails when there is one (3, govulncheck's code); without the database it says so.
vuln:
	@mkdir -p build; GOBIN=$(CURDIR)/build $(GO) install golang.org/x/vuln/cmd/govulncheck@v1.9.0
	@code=0; build/govulncheck $(TAGS) ./... > build/vuln.log 2>&1 || code=$$?; cat build/vuln.log; \
	if test $$code = 1 && grep -q 'fetching vulnerabilities' build/vuln.log; then echo "vuln: SKIPPED, the database cannot be reached"; else exit $$code; fi
# Module, version and licence of what is linked into the jobs: build/licenses.csv.
licenses:
	$(GO) run $(TAGS) ./internal/licenses --out build/licenses.csv
lint:
	@out=$$(gofmt -l $$(find . -name '*.go' -not -path './data/*' -not -path './runs/*')); test -z "$$out" || { echo "gofmt: $$out"; exit 1; }
	$(GO) vet $(TAGS) ./...
	$(GO) tool staticcheck $(TAGS) ./...

# What the tag faiss adds, beside Python's faiss where that is installed.
test-faiss:
	@test -n '$(FAISS)' || { echo "test-faiss: FAISS is not installed; Debian's packages: libfaiss-dev libopenblas-dev g++ python3-faiss"; exit 2; }
	CGO_ENABLED=1 $(GO) vet $(TAGS),faiss ./indexer/...
	CGO_ENABLED=1 $(GO) tool staticcheck $(TAGS),faiss ./indexer/faiss
	CGO_ENABLED=1 $(GO) test $(TAGS),faiss -count=1 ./indexer/faiss
	CGO_ENABLED=1 $(GO) test $(TAGS),faiss -count=1 -run FAISS ./indexer

# Compiles every kernel for Ampere and Hopper, and vets what the tag cuda adds:
# this needs the toolkit (cuda.h, NVRTC), not a GPU. The other two need a GPU.
cuda-check:
	@test -n '$(CUDA_TAGS)' || { echo "cuda-check: no CUDA headers in $(CUDA_HOME)/include; set CUDA_HOME"; exit 2; }
	$(CUDA) $(GO) vet $(CUDA_TAGS) ./internal/cuda ./internal/tensor/... ./internal/model/... ./indexer/... ./train
	$(CUDA) CUDA_CHECK=1 $(GO) test $(CUDA_TAGS) -run TestKernelsCompile ./internal/cuda
test-gpu:
	$(CUDA) $(GO) test $(CUDA_TAGS) -count=1 ./internal/cuda ./internal/tensor/cuda
	$(CUDA) $(GO) test $(CUDA_TAGS) -count=1 -run GPU ./internal/model/... ./train
	$(CUDA) $(GO) test $(CUDA_TAGS) -count=1 ./indexer/flat/gpu
bench-gpu:
	$(CUDA) $(GO) run $(CUDA_TAGS) ./internal/model/qwenvl/gpubench --python "$(PYTHON)" --out build/bench/gpu-train.json --only "$(BENCH_ONLY)" || test $$? = 3
	$(CUDA) $(GO) run $(CUDA_TAGS) ./indexer/embedbench --python "$(PYTHON)" --out build/bench/gpu-embed.json --only "$(BENCH_ONLY)" || test $$? = 3
	$(CUDA) $(GO) run $(CUDA_TAGS) ./indexer/searchbench --python "$(PYTHON)" --out build/bench/gpu-search.json --only "$(BENCH_ONLY)" || test $$? = 3
	$(GO) run $(TAGS) ./internal/bench/merge --out build/bench-gpu.json build/bench/gpu-train.json build/bench/gpu-embed.json build/bench/gpu-search.json

# Every fuzz target for FUZZTIME, two at once. What one finds lies in testdata/fuzz
# of its package; mended, it is committed as a seed.
# A run whose time is over may end as failed, until Go 1.27 (go.dev/issue/75804): it
# found nothing if these three lines are its last and no input was written.
OUT_OF_TIME := ! grep -qE "panic|Failing input" $$1-$$2.log && tail -n 3 $$1-$$2.log | tr -d "\n" | grep -qE "^--- FAIL: $$2 \([0-9.]+s\) +context deadline exceededFAIL$$"
FUZZTIME ?= 30s
fuzz:
	@mkdir -p build/fuzz; for d in $$(grep -rl --include='*_test.go' '^func Fuzz' $(STAGES) | sed 's,/[^/]*$$,,' | sort -u); do \
		bin=$(CURDIR)/build/fuzz/$${d//\//-}.test; $(GO) test $(TAGS) -c -fuzz . -o $$bin ./$$d; \
		for name in $$($$bin -test.list '^Fuzz'); do echo $$d $$bin $$name; done; done \
	| xargs -P 2 -L 1 bash -c 'cd $$0; echo "$$0 $$2"; $$1 -test.run "^$$" -test.fuzz "^$$2$$" -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 10x \
		-test.parallel 1 -test.fuzzcachedir $(CURDIR)/build/fuzz/cache > $$1-$$2.log 2>&1 || { cat $$1-$$2.log; $(OUT_OF_TIME); }'

clean:
	rm -rf bin build
clean-data:
	rm -rf data runs

help:
	@sed -n 's/^## //p' pipelines/help.txt | sed 's/^ //' ; true
