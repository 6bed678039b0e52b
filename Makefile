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
ENCODER    ?=
SET        ?=
SHARED     ?= ../shared/data
EPOCHS     ?= 6
JOBFLAGS   ?=

# ---- building --------------------------------------------------------------
# SIMD kernels need the experiment; a plain "go build ./..." works with generic
# loops. Without cgo every job is one static binary.
export GOEXPERIMENT := simd
export CGO_ENABLED  := 0
GO      ?= go
# nodynamic: AVIF is decoded by our own binary, not by a library of the system.
TAGS    := -tags nodynamic
JOBS    := $(notdir $(wildcard jobs/*))
SOURCES := $(shell find corpus eval indexer internal jobs rollout train -name '*.go' -o -name '*.html' -o -name '*.css' -o -name '*.js' 2>/dev/null) go.mod go.sum
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)

.PHONY: all build demo test lint bench clean clean-data help
all: build
build: bin/.built
bin/.built: $(SOURCES)
	@mkdir -p bin
	$(GO) build $(TAGS) -ldflags '-X searchloop/internal/job.Version=$(VERSION)' -o bin/ ./jobs/...
	@touch $@

include pipelines/sources.mk
include pipelines/index.mk
include pipelines/run.mk
include pipelines/eval.mk

# ---- the demo --------------------------------------------------------------
demo: build
	@start=$$(date +%s); \
	$(MAKE) --no-print-directory RECIPE=demo RUN=demo BENCH=demo EPOCH=$(EPOCHS) loop; \
	bin/report --run runs/demo --bench demo --out runs/demo/report.html --summary runs/demo/summary.json --seconds $$(( $$(date +%s) - start ))

# ---- quality ---------------------------------------------------------------
test: lint
	$(GO) test $(TAGS) ./...
lint:
	@out=$$(gofmt -l $$(find . -name '*.go' -not -path './data/*' -not -path './runs/*')); test -z "$$out" || { echo "gofmt: $$out"; exit 1; }
	$(GO) vet $(TAGS) ./...
	$(GO) tool staticcheck $(TAGS) ./...
bench:
	$(GO) test $(TAGS) -run '^$$' -bench . -benchtime 1s ./internal/gemm ./internal/vec ./internal/model/qwenvl ./indexer/...

clean:
	rm -rf bin build
clean-data:
	rm -rf data runs

help:
	@sed -n 's/^## //p' pipelines/help.txt | sed 's/^ //' ; true
