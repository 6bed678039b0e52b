# One run: epoch 0 is the warm start, epoch e ≥ 1 is rollout, judge, GRPO.
#   runs/RUN/epoch-0/{rollouts,checkpoint}            teacher, SFT
#   runs/RUN/epoch-e/{rollouts,judged,checkpoint}     policy of e-1 plays; policy of e comes out
.PHONY: rollout judge train loop plan

R := runs/$(RUN)
flags = --recipe $(RECIPE) $(foreach s,$(SET),--set $(s)) $(JOBFLAGS)

# What a run's stages depend on beside data: the recipes, and what was set on the
# command line. A job whose part of it is unchanged sees that and does nothing.
settings := $(R)/.settings
said     := $(RECIPE) $(SET) limit=$(LIMIT) shards=$(SHARDS) corpus=$(CORPUS) $(POLICY) $(POLICY_URL) $(POLICY_MODEL) $(JUDGE_URL) $(JUDGE_MODEL)
ifneq ($(filter demo rollout judge train loop eval nightly plan runs/%,$(MAKECMDGOALS)),)
# Written while make reads this file, so that make -n sees the truth.
$(shell mkdir -p $(R) && { echo '$(said)' | cmp -s - $(settings) || echo '$(said)' > $(settings); })
endif
recipes := $(wildcard pipelines/recipes/*.yaml) $(settings)

rollout: $(R)/epoch-$(EPOCH)/rollouts/manifest.json
judge:   $(R)/epoch-$(EPOCH)/judged/manifest.json
train:   $(R)/epoch-$(EPOCH)/checkpoint/manifest.json

# The policy that plays epoch e is that of e-1; with POLICY the first one is a
# folder of the user's.
prev       = $(shell expr $(1) - 1)
policydir  = $(if $(filter 0,$(1)),$(if $(POLICY),$(POLICY),$(R)/epoch-0/checkpoint),$(R)/epoch-$(1)/checkpoint)
policydep  = $(if $(and $(POLICY),$(filter 0,$(1))),$(POLICY)/config.json,$(R)/epoch-$(1)/checkpoint/manifest.json)
player     = $(if $(POLICY_URL),--policy-url $(POLICY_URL) $(if $(POLICY_MODEL),--policy-model $(POLICY_MODEL)),--policy $(call policydir,$(1)))
playerdep  = $(if $(POLICY_URL),,$(call policydep,$(1)))
# Questions, images, lens cache and indices of a set.
playing    = --questions data/questions/$(1) --lens data/lens/$(1) --text-index data/corpora/$(CORPUS)/text/index $(if $(I_IN.$(CORPUS)),--image-index data/corpora/$(CORPUS)/images/index)
playingdep = $(call questions,$(1)) $(call lensof,$(1)) $(call indices,$(CORPUS))
judging    = $(if $(JUDGE_URL),--judge-url $(JUDGE_URL)) $(if $(JUDGE_MODEL),--judge-model $(JUDGE_MODEL))

# Epoch 0: the scripted teacher plays every training question once.
$(R)/epoch-0/rollouts/manifest.json: $(call playingdep,$(TRAINSET)) $(recipes) | bin/.built
	bin/rollout $(flags) --set rollout.questions=0 --policy-script teacher --samples 2 $(call playing,$(TRAINSET)) --out $(@D) --run $(RUN) --epoch 0 --mode train --shards $(SHARDS) $(limit)

$(R)/base/manifest.json: $(R)/epoch-0/rollouts/manifest.json $(recipes) | bin/.built
	bin/policy $(flags) --rollouts $(R)/epoch-0/rollouts --out $(@D)

$(R)/epoch-0/checkpoint/manifest.json: $(R)/base/manifest.json $(R)/epoch-0/rollouts/manifest.json $(recipes) | bin/.built
	bin/sft $(flags) --policy $(R)/base --rollouts $(R)/epoch-0/rollouts --images data/questions/$(TRAINSET)/images --images $(R)/epoch-0/rollouts/images --out $(@D)

# Epoch e. Rules are written out for each epoch, since make uses a pattern rule
# only once in a chain.
define epoch_rules
$(R)/epoch-$(1)/rollouts/manifest.json: $(call playingdep,$(TRAINSET)) $(call playerdep,$(call prev,$(1))) $(recipes) | bin/.built
	bin/rollout $$(flags) $(call player,$(call prev,$(1))) $(call playing,$(TRAINSET)) --out $$(@D) --run $(RUN) --epoch $(1) --mode train --shards $(SHARDS) $(limit)

$(R)/epoch-$(1)/judged/manifest.json: $(R)/epoch-$(1)/rollouts/manifest.json $(recipes) | bin/.built
	bin/judge $$(flags) --rollouts $(R)/epoch-$(1)/rollouts --out $$(@D) $(judging) --shards $(SHARDS)

$(R)/epoch-$(1)/checkpoint/manifest.json: $(R)/epoch-$(1)/judged/manifest.json $(R)/epoch-$(1)/rollouts/manifest.json $(call policydep,$(call prev,$(1))) $(call policydep,0) $(recipes) | bin/.built
	bin/grpo $$(flags) --policy $(call policydir,$(call prev,$(1))) --reference $(call policydir,0) --rollouts $(R)/epoch-$(1)/rollouts --judged $(R)/epoch-$(1)/judged --images data/questions/$(TRAINSET)/images --images $(R)/epoch-$(1)/rollouts/images --out $$(@D)
endef
$(foreach e,$(shell seq 1 $(EPOCH)),$(eval $(call epoch_rules,$(e))))

# Every epoch up to EPOCH, each policy evaluated.
loop: $(foreach e,$(shell seq 0 $(EPOCH)),$(R)/evals/$(BENCH)/epoch-$(e)/manifest.json)

# Each job that make would run says what it would do, and why.
plan: | bin/.built
	@$(MAKE) --no-print-directory -n train | { grep '^bin/' || true; } | { n=0; while read -r line; do n=1; \
		eval "$$line --dry-run" 2>/dev/null || echo "$$(sed -n 's/.*--out \([^ ]*\).*/\1/p' <<< "$$line"): to do, once its inputs are there"; done; \
		test $$n = 1 || echo "nothing to do: $(R)/epoch-$(EPOCH)/checkpoint is up to date"; }
