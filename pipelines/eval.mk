# Evaluation: the policy of an epoch plays the questions of BENCH.
#   runs/RUN/evals/BENCH/epoch-e/{rollouts,judged,metrics.json,…}
.PHONY: eval report nightly

V := $(R)/evals/$(BENCH)
# The newest policy there is, unless EPOCH is given on the command line.
newest := $(shell ls -d $(R)/epoch-*/checkpoint/manifest.json 2>/dev/null | sed 's|.*/epoch-\([0-9]*\)/.*|\1|' | sort -n | tail -1)
evalepoch := $(if $(filter command line,$(origin EPOCH)),$(EPOCH),$(or $(newest),0))

eval: $(V)/epoch-$(evalepoch)/manifest.json
	@bin/evaluate --show $(V)/epoch-$(evalepoch)

define eval_rules
$(V)/epoch-$(1)/rollouts/manifest.json: $(call playingdep,$(BENCH)) $(call playerdep,$(1)) $(recipes) | bin/.built
	bin/rollout $$(flags) $(call player,$(1)) $(call playing,$(BENCH)) --out $$(@D) --run $(RUN) --epoch $(1) --mode eval --shards $(SHARDS) $(limit)

$(V)/epoch-$(1)/judged/manifest.json: $(V)/epoch-$(1)/rollouts/manifest.json $(recipes) | bin/.built
	bin/judge $$(flags) --rollouts $(V)/epoch-$(1)/rollouts --out $$(@D) $(judging) --shards $(SHARDS)

$(V)/epoch-$(1)/manifest.json: $(V)/epoch-$(1)/judged/manifest.json $(V)/epoch-$(1)/rollouts/manifest.json $(recipes) | bin/.built
	bin/evaluate $$(flags) --bench $(BENCH) --rollouts $(V)/epoch-$(1)/rollouts --judged $(V)/epoch-$(1)/judged --questions data/questions/$(BENCH) --out $$(@D)
endef
$(foreach e,$(sort $(shell seq 0 $(EPOCH)) $(evalepoch)),$(eval $(call eval_rules,$(e))))

report: | bin/.built
	bin/report --run $(R) --bench $(BENCH) --out $(R)/report.html

# For cron: a second one that starts while the first still runs says so and ends well.
nightly:
	@mkdir -p $(R)
	@flock -n -E 99 $(R)/.nightly.lock $(MAKE) --no-print-directory eval report || { code=$$?; test $$code -eq 99 && echo "nightly: the last one is still running" || exit $$code; }
