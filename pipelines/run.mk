# One run: epoch 0 is the warm start, epoch e ≥ 1 is rollout, judge, GRPO.
#   runs/RUN/epoch-0/{rollouts,checkpoint}            teacher, SFT
#   runs/RUN/epoch-e/{rollouts,judged,checkpoint}     policy of e-1 plays; policy of e comes out
.PHONY: rollout judge train loop plan prune

R := runs/$(RUN)
flags = --recipe $(RECIPE) $(foreach s,$(SET),--set $(s)) $(JOBFLAGS)

# What a run's stages depend on beside data: the recipes, and what was set on the
# command line. A job whose part of it is unchanged sees that and does nothing.
settings := $(R)/.settings
said     := $(RECIPE) $(SET)$(if $(DEVICE), device=$(DEVICE)) limit=$(LIMIT) shards=$(SHARDS) corpus=$(CORPUS) $(POLICY) $(POLICY_URL) $(POLICY_MODEL) $(JUDGE) $(JUDGE_URL) $(JUDGE_MODEL) $(GALLERY) $(PAGES) $(PUBLISHED)
ifneq ($(filter $(playing_goals),$(MAKECMDGOALS)),)
# Written while make reads this file, so that make -n sees the truth.
$(shell $(call noted,$(R),$(said)))
endif
recipes := $(wildcard pipelines/recipes/*.yaml) $(settings)

rollout: $(R)/epoch-$(EPOCH)/rollouts/manifest.json
judge:   $(R)/epoch-$(EPOCH)/judged/manifest.json
train:   $(R)/epoch-$(EPOCH)/checkpoint/manifest.json

# The policy that plays epoch e is that of e-1; with POLICY the first one is a
# folder of the user's. POLICY_URL=recipe leaves it to the recipe's servers.
prev       = $(shell expr $(1) - 1)
policydir  = $(if $(filter 0,$(1)),$(if $(POLICY),$(POLICY),$(R)/epoch-0/checkpoint),$(R)/epoch-$(1)/checkpoint)
policydep  = $(if $(and $(POLICY),$(filter 0,$(1))),$(POLICY)/config.json,$(R)/epoch-$(1)/checkpoint/manifest.json)
player     = $(if $(filter recipe,$(POLICY_URL)),,$(if $(POLICY_URL),$(addprefix --policy-url ,$(POLICY_URL)) $(if $(POLICY_MODEL),--policy-model $(POLICY_MODEL)),--policy $(call policydir,$(1))))
playerdep  = $(if $(POLICY_URL),,$(call policydep,$(1)))
# Questions, images, lens cache, indices, pages and gallery of a set; a rollout opens
# those that a tool of its recipe reads. Without CORPUS everything is searched live.
playing    = --questions data/questions/$(1) --lens data/lens/$(1) $(if $(CORPUS),$(corpus)) $(addprefix --pages ,$(PAGES)) $(live)
corpus     = --text-index data/corpora/$(CORPUS)/text/index --pages data/corpora/$(CORPUS)/text/passages $(if $(I_IN.$(CORPUS)),--image-index data/corpora/$(CORPUS)/images/index) $(addprefix --encoder ,$(ENCODER_URL)) $(addprefix --gallery ,$(gallery))
gallery    = $(or $(GALLERY),$(if $(I_IN.$(CORPUS)),data/corpora/$(CORPUS)/images/passages))
live       = --cache $(CACHE) $(addprefix --publish ,$(PUBLISH)) $(PUBLISH_FLAGS) $(addprefix --published ,$(PUBLISHED)) $(addprefix --record ,$(RECORD)) $(addprefix --replay ,$(REPLAY)) $(addprefix --frozen ,$(FROZEN)) $(addprefix --max-cost ,$(MAX_COST))
playingdep = $(call questions,$(1)) $(call lensof,$(1)) $(if $(CORPUS),$(call indices,$(CORPUS))) $(addsuffix /manifest.json,$(GALLERY) $(PAGES) $(PUBLISHED))
judging    = --cache $(CACHE) $(judgeserved) $(if $(JUDGE_URL),--judge-url $(JUDGE_URL)) $(if $(JUDGE_MODEL),--judge-model $(JUDGE_MODEL))

# With TENSORBOARD=1 the metrics are curves too: tensorboard --logdir runs/RUN/tensorboard
board      = $(if $(TENSORBOARD),--tensorboard $(R)/tensorboard/$(1))
# With DEVICE=cuda (or auto) sft and grpo compute on a GPU.
device     = $(addprefix --device ,$(DEVICE))
# With KEEP_LAST old epochs lose their training state as soon as a new one is there.
pruning    = bin/prune --run $(R) --keep-last $(or $(KEEP_LAST),2) --keep-best $(KEEP_BEST) $(if $(KEEP_BY),--bench $(KEEP_BY)) $(JOBFLAGS)

# With FOLLOW=1 the judge starts with the rollout and judges each trajectory as it ends
# (docs/judged.md). It ends with the rollout; one that fails is heard of when judging is due.
# A judge that is served for its own stage (JUDGE) is not there yet.
following  = $(if $(JUDGE),,$(FOLLOW))
follower   = $(if $(following),bin/judge $(flags) --follow --progress none --rollouts $(1)/rollouts --out $(1)/judged $(judging) $(shards) $(if $(2),$(call board,$(2))) & judge=$$!; )
followed   = $(if $(following), || code=$$?; test $${code:-0} -eq 0 || kill $$judge 2>/dev/null || true; wait $$judge || true; exit $${code:-0})

# Epoch 0: the scripted teacher plays every training question once.
$(R)/epoch-0/rollouts/manifest.json: $(call playingdep,$(TRAINSET)) $(recipes) | bin/.built
	$(launch)bin/rollout $(flags) --set rollout.questions=0 --policy-script teacher --samples 2 $(call playing,$(TRAINSET)) --out $(@D) --run $(RUN) --epoch 0 --mode train $(shards) $(limit)

$(R)/base/manifest.json: $(R)/epoch-0/rollouts/manifest.json $(recipes) | bin/.built
	$(launch)bin/policy $(flags) --rollouts $(R)/epoch-0/rollouts --out $(@D)

$(R)/epoch-0/checkpoint/manifest.json: $(R)/base/manifest.json $(R)/epoch-0/rollouts/manifest.json $(recipes) | bin/.built
	$(launch)bin/sft $(flags) --policy $(R)/base --rollouts $(R)/epoch-0/rollouts --images data/questions/$(TRAINSET)/images --images $(R)/epoch-0/rollouts/images --out $(@D) $(device) $(call board,epoch-0)

# Epoch e. Rules are written out for each epoch, since make uses a pattern rule
# only once in a chain.
define epoch_rules
$(R)/epoch-$(1)/rollouts/manifest.json: $(call playingdep,$(TRAINSET)) $(call playerdep,$(call prev,$(1))) $(recipes) | bin/.built
	$$(call follower,$(R)/epoch-$(1),judge)$$(call launch,$(call policyservers,$(call prev,$(1))))bin/rollout $$(flags) $(call player,$(call prev,$(1))) $(call policyserved,$(call prev,$(1))) $(call playing,$(TRAINSET)) --out $$(@D) --run $(RUN) --epoch $(1) --mode train $(shards) $(limit) $(call board,rollout)$$(followed)

$(R)/epoch-$(1)/judged/manifest.json: $(R)/epoch-$(1)/rollouts/manifest.json $(recipes) | bin/.built
	$$(call launch,$(judgeservers))bin/judge $$(flags) --rollouts $(R)/epoch-$(1)/rollouts --out $$(@D) $(judging) $(shards) $(call board,judge)

$(R)/epoch-$(1)/checkpoint/manifest.json: $(R)/epoch-$(1)/judged/manifest.json $(R)/epoch-$(1)/rollouts/manifest.json $(call policydep,$(call prev,$(1))) $(call policydep,0) $(recipes) | bin/.built
	$$(launch)bin/grpo $$(flags) --policy $(call policydir,$(call prev,$(1))) --reference $(call policydir,0) --rollouts $(R)/epoch-$(1)/rollouts --judged $(R)/epoch-$(1)/judged --images data/questions/$(TRAINSET)/images --images $(R)/epoch-$(1)/rollouts/images --out $$(@D) $(device) $(call board,epoch-$(1))
	$(if $(KEEP_LAST),$(pruning))
endef
$(foreach e,$(shell seq 1 $(EPOCH)),$(eval $(call epoch_rules,$(e))))

# Every epoch up to EPOCH, each policy evaluated.
loop: $(foreach e,$(shell seq 0 $(EPOCH)),$(R)/evals/$(BENCH)/epoch-$(e)/manifest.json)

prune: | bin/.built
	$(pruning)

# Each job that make would run says what it would do, and why.
plan: | bin/.built
	@$(MAKE) --no-print-directory FOLLOW= -n train | { grep '^bin/' || true; } | { n=0; while read -r line; do n=1; \
		eval "$$line --dry-run" 2>/dev/null || echo "$$(sed -n 's/.*--out \([^ ]*\).*/\1/p' <<< "$$line"): to do, once its inputs are there"; done; \
		test $$n = 1 || echo "nothing to do: $(R)/epoch-$(EPOCH)/checkpoint is up to date"; }
