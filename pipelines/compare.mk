# What a penalty on searching does (MMSearch-R1), on the demo world, by one command.
#   make compare        exit 3 when accuracy falls by more than 2 points, or fewer than 25 % of the searches are saved
#   data/questions/demo-train-balanced    drawn with the policy of demo-long from COMPARE_LIMIT questions
#   runs/demo-long                        the demo with a longer warm start, COMPARE_START epochs: the policy
#   runs/compare/{eager,start}            that policy, made to look everything up
#   runs/compare-{plain,penalty}          COMPARE_EPOCHS of GRPO from there, without and with the penalty
#   runs/compare-plain/report.html        curves of both
# They are evaluated on BENCH=demo-mix, questions in the proportion of the paper's set
# (68 of 100 need a search); of those of BENCH=demo 85 do.
.PHONY: compare

PENALTY        ?= 0.1
COMPARE_START  ?= 6
COMPARE_LIMIT  ?= 600
COMPARE_EPOCHS ?= 3
COMPARE_BATCH  ?= 40

ifneq ($(filter compare,$(MAKECMDGOALS)),)
measure  := $(if $(filter command line environment,$(origin BENCH)),$(BENCH),demo-mix)
again    := $(MAKE) --no-print-directory RECIPE=demo-long
compared := TRAINSET=demo-train-balanced BENCH=$(measure) EPOCH=$(COMPARE_EPOCHS) POLICY=runs/compare/start LIMIT=
compare: build
	@$(again) RUN=demo-long BENCH=demo EPOCH=$(COMPARE_START) LIMIT= train
	@$(again) RUN=compare TRAINSET=demo-train EPOCH=0 POLICY=runs/demo-long/epoch-$(COMPARE_START)/checkpoint LIMIT=$(COMPARE_LIMIT) curate
	bin/rollout --recipe demo-long --set rollout.questions=0 --policy-script eager --samples 1 --limit 1000 $(call playing,demo-train) --out runs/compare/eager --run compare --epoch 0 --mode train $(JOBFLAGS)
	bin/sft --recipe demo-long --policy runs/demo-long/epoch-$(COMPARE_START)/checkpoint --rollouts runs/compare/eager --images data/questions/demo-train/images --images runs/compare/eager/images --out runs/compare/start $(device) $(JOBFLAGS)
	@$(again) $(compared) RUN=compare-plain SET="$(SET) rollout.questions=$(COMPARE_BATCH)" loop
	@$(again) $(compared) RUN=compare-penalty SET="$(SET) rollout.questions=$(COMPARE_BATCH) reward.penalty=$(PENALTY)" loop
	bin/report --recipe demo-long --run runs/compare-plain --run runs/compare-penalty --bench $(measure) --out runs/compare-plain/report.html
	bin/evaluate --show runs/compare-penalty/evals/$(measure)/epoch-$(COMPARE_EPOCHS) --baseline runs/compare-plain/evals/$(measure)/epoch-$(COMPARE_EPOCHS) --max-drop 0.02 --min-fewer 0.25
endif
