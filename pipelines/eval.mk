# Evaluation: the policy of an epoch plays the questions of BENCH.
#   runs/RUN/evals/BENCH/epoch-e/{rollouts,judged,metrics.json,…}
.PHONY: eval report nightly

V := $(R)/evals/$(BENCH)
# A night that goes on after a crash may meet jobs that still write down what they have.
waiting = $(if $(filter $(R)/nights/%,$(V)),--wait)
# Curves are of the run's own evaluations: nights have a history.
evalboard = $(if $(waiting),,$(call board,$(BENCH)/$(1)))
# The newest policy there is, unless EPOCH is given on the command line.
newest := $(shell ls -d $(R)/epoch-*/checkpoint/manifest.json 2>/dev/null | sed 's|.*/epoch-\([0-9]*\)/.*|\1|' | sort -n | tail -1)
evalepoch := $(if $(filter command line,$(origin EPOCH)),$(EPOCH),$(or $(newest),0))

eval: $(V)/epoch-$(evalepoch)/manifest.json
	@bin/evaluate --show $(V)/epoch-$(evalepoch) $(if $(BASELINE),--baseline $(BASELINE) $(addprefix --max-drop ,$(MAX_DROP))) $(if $(EXPORT),--export $(EXPORT) --to $(V)/epoch-$(evalepoch)/export-$(EXPORT))

define eval_rules
$(V)/epoch-$(1)/rollouts/manifest.json: $(call playingdep,$(BENCH)) $(call playerdep,$(1)) $(recipes) | bin/.built
	$$(call follower,$(V)/epoch-$(1),$(if $(waiting),,$(BENCH)/judge))$$(call launch,$(call policyservers,$(1)))bin/rollout $$(flags) $(call player,$(1)) $(call policyserved,$(1)) $(call playing,$(BENCH)) --out $$(@D) --run $(RUN) --epoch $(1) --mode eval $(shards) $(limit) $(waiting) $(call evalboard,rollout)$$(followed)

$(V)/epoch-$(1)/judged/manifest.json: $(V)/epoch-$(1)/rollouts/manifest.json $(recipes) | bin/.built
	$$(call launch,$(judgeservers))bin/judge $$(flags) --rollouts $(V)/epoch-$(1)/rollouts --out $$(@D) $(judging) $(shards) $(waiting) $(call evalboard,judge)

$(V)/epoch-$(1)/manifest.json: $(V)/epoch-$(1)/judged/manifest.json $(V)/epoch-$(1)/rollouts/manifest.json $(recipes) | bin/.built
	$$(launch)bin/evaluate $$(flags) --bench $(BENCH) --rollouts $(V)/epoch-$(1)/rollouts --judged $(V)/epoch-$(1)/judged --questions data/questions/$(BENCH) --out $$(@D) $(waiting) $(call evalboard,evaluate)
endef
$(foreach e,$(sort $(shell seq 0 $(EPOCH)) $(evalepoch)),$(eval $(call eval_rules,$(e))))

# With RUNS="a b" the report of the first shows the others beside it.
report: | bin/.built
	bin/report $(flags) $(foreach r,$(or $(RUNS),$(RUN)),--run runs/$(r)) --bench $(BENCH) --out runs/$(firstword $(RUNS) $(RUN))/report.html

# Every night of a run has a folder below runs/RUN/nights, and a line of its history
# (docs/nightly.md). A second one that starts while the first still runs says so and
# ends well. Benchmarks are those of the recipe, or BENCHES="a b"; checkpoints the
# newest one, or CHECKPOINTS="3 5". The job calls this make again, for each of them,
# with V in the night's folder.
CHECKPOINTS ?=
NIGHT       ?=
AGAINST_NIGHT ?=
LIVE        ?=
again       := $(MAKE) --no-print-directory
nightbenches = $(if $(filter command environment,$(origin BENCHES)),$(BENCHES),$(if $(filter command environment,$(origin BENCH)),$(BENCH)))
nightly: | bin/.built
	@bin/nightly $(flags) --run $(R) --otherwise $(BENCH) $(foreach b,$(nightbenches),--bench $(b)) $(foreach e,$(or $(CHECKPOINTS),$(evalepoch)),--epoch $(e)) \
	  $(addprefix --night ,$(NIGHT)) $(addprefix --against ,$(AGAINST_NIGHT)) $(addprefix --max-drop ,$(MAX_DROP)) $(addprefix --frozen ,$(FROZEN)) \
	  $(if $(LIVE),--live) $(if $(POLICY_URL),--served) $(addprefix --start ,$(POLICY)) -- $(again)
