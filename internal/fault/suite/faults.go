package main

// fault is one way in which a night goes wrong, and the tests that show what then
// happens. Tests that have its number in their name (TestF29…) belong to it without
// being listed.
type fault struct {
	id, name string
	tests    []string
	note     string
}

var faults = []fault{
	{"F1", "KILL at every point of every stage", []string{"internal/job.TestKillAtEveryPoint", "train.TestEveryFaultPoint", "pipelines.TestKillingAnyJobChangesNothing", "rollout.TestKill"}, ""},
	{"F2", "TERM with requests in flight that are answered", []string{"internal/job.TestTermEndsSoon", "pipelines.TestF2TermWithRequestsInFlight", "pipelines.TestOneSignal"}, ""},
	{"F3", "TERM with a server that never answers", []string{"internal/job.TestTermDuringAHang", "pipelines.TestF3TermWhenNobodyAnswers"}, ""},
	{"F4", "INT twice", []string{"internal/job.TestSecondInterrupt", "pipelines.TestTwoSignals"}, ""},
	{"F5", "no space at the Nth write, and on a real small disk", []string{"internal/job.TestFailAtEveryPoint", "internal/job.TestFullDisk", "internal/journal.TestFullDisk", "internal/atomicfile.TestFullDisk", "internal/table.TestTextsDiskFull"}, ""},
	{"F6", "no space or EIO only at fsync or close", []string{"internal/job.TestFailAtEveryPoint"}, "points atomicfile.sync and atomicfile.close"},
	{"F7", "EDQUOT, EXDEV, EACCES at rename", []string{"internal/atomicfile.TestF7RenameFails", "internal/job.TestFailAtEveryPoint"}, ""},
	{"F8", "input cut, empty, of wrong magic", []string{"internal/table.TestCutAnywhere", "corpus/record.TestTruncatedParquet", "pipelines.TestBadInput"}, ""},
	{"F9", "one bit flipped in a valid shard", []string{"internal/manifest.TestVerifyFindsFlips", "internal/table.TestFlippedBits"}, ""},
	{"F10", "no rows, a missing column, a newer schema", []string{"internal/table.TestColumns", "internal/manifest.TestRequire", "train.TestEmptyRollouts"}, ""},
	{"F11", "journal cut anywhere, a byte flipped in the middle", []string{"internal/journal.TestTornTail", "internal/journal.TestFlippedBits"}, ""},
	{"F12", "two processes on one shard", []string{"internal/job.TestTwoProcessesOneShard"}, ""},
	{"F13", "stale lock of a dead process", []string{"internal/job.TestF13DeadHolder"}, "flock ends with its process, on every host"},
	{"F14", "429 with Retry-After", []string{"internal/retry.TestRetryAfterIsHonoured"}, ""},
	{"F15", "half of the calls 503 for a while", []string{"internal/retry.TestRetryBudget", "internal/retry.TestQuickFailuresAmongManyCalls", "pipelines.TestServersThatRecover"}, ""},
	{"F16", "a server that is down for good", []string{"internal/retry.TestOutageIsWaitedForAndThenGivenUp", "rollout.TestErrorsThatEndTheJob"}, ""},
	{"F17", "401 in the middle", []string{"rollout.TestRefusedKeyStopsAtOnce"}, ""},
	{"F18", "200 with HTML, cut JSON, an error, nothing", []string{"internal/llm.TestEveryFailureHasItsClass", "rollout.TestServerFaultsFailTheTrajectoryWithTheirClass"}, ""},
	{"F19", "an answer after the time-out, and the retry's", []string{"internal/llm.TestF19LateAnswer"}, ""},
	{"F20", "bad images: cut, huge, bombs, text", []string{"corpus.TestCheckImage", "internal/picture.TestDamaged", "internal/picture.TestRefused", "corpus.TestMalformedRows"}, ""},
	{"F21", "a sample that kills its process", []string{"internal/job.TestF21DeadlySamples", "internal/job.TestKilledFromOutsideIsNoSamplesFault", "rollout.TestF21DeadlyTrajectory", "internal/launch.TestF21PoisonIsNamed", "internal/slurm.TestPoison"}, "rollouts and verdicts are left out one by one; elsewhere the shard is named and costs nothing but itself"},
	{"F22", "hostile tar files", []string{"internal/untar.TestAttacks", "internal/untar.TestLimits", "internal/untar.TestManyEntries", "internal/untar.TestCut"}, ""},
	{"F23", "fetches of private addresses", []string{"internal/netguard.TestF23PrivateAddressesAreNotDialled"}, ""},
	{"F24", "endless, slow, huge and binary pages", []string{"internal/netguard.TestF24Limits"}, ""},
	{"F25", "pages and answers that speak to the judge", []string{"rollout/live.TestF25HostilePages", "rollout/live.TestF25HostileHits", "rollout/judge.TestAnswersCannotSpeakToTheJudge"}, ""},
	{"F26", "a judge that does not decide", []string{"rollout/judge.TestUnclearVerdicts", "rollout/judge.TestParseVerdict", "rollout/judge.TestJudgeFaults", "pipelines.TestJudgeThatDoesNotDecide"}, ""},
	{"F27", "secrets in the environment, key files, URLs, error bodies", []string{"pipelines.TestF27Canaries", "internal/job.TestSecretsStayInside", "internal/secret.TestScrubber", "internal/llm.TestBadAddressAndNoSecretsShown", "internal/slurm.TestArrayWithAHoleAndNoKeyInSlurm"}, ""},
	{"F28", "another spec over an old folder", []string{"internal/job.TestStaleReasons", "internal/job.TestJournalOfOtherParams", "internal/job.TestOtherLayout", "pipelines.TestChangedInputRebuildsWhatDependsOnIt"}, ""},
	{"F29", "a missing, double or foreign shard", []string{"indexer.TestOpenRefusesForeignShards", "indexer.TestG5OpenFindsAndRefusesParts", "internal/manifest.TestBadFolders", "pipelines.TestF29MissingAndForeignShards"}, ""},
	{"F30", "make: failing, killed, -j, clock set back, touched inputs", []string{"pipelines.TestNothingToDoRunsNoJob", "pipelines.TestParallelMakeEndsWithTheSameData", "pipelines.TestF30MakeIsStopped"}, ""},
	{"F31", "checkpoints: killed while saving, NaN, cut, other data", []string{"train.TestEveryFaultPoint", "train.TestKillAtRandom", "train.TestDamagedStates", "train.TestGradientThatIsNoNumber", "train.TestStaleCheckpointIsMadeAnew"}, ""},
	{"F32", "rollouts of two policies, bad log-probs, equal rewards", []string{"rollout.TestPolicyChangesMidway", "train.TestOtherPolicyStops", "train.TestRefusals", "train.TestAdvantageOfEqualRewards"}, ""},
	{"F33", "Slurm: killed, drained, cancelled, out of time, restarted", []string{"internal/slurm.TestKilledTask", "internal/slurm.TestCancelledWhilePending", "internal/slurm.TestPreempted", "internal/slurm.TestTimeLimit",
		"internal/slurm.TestControllerRestartsAndNodeDrains", "internal/slurm.TestSubmitterKilled", "internal/slurm.TestTerm", "internal/slurm.TestIndexLimit", "internal/slurm.TestServersAndGroupsAndGPUs", "pipelines.TestShardsAndLaunchersChangeNothing"}, ""},
	{"F34", "a done marker that is seen before its data", []string{"internal/launch.TestFilesThatComeLate"}, ""},
	{"F35", "nightly: twice at once, stopped in the middle", []string{"pipelines.TestF35Nightly", "pipelines.TestCronNight", "pipelines.TestNightlyRegression", "eval/nightly.TestNights"}, ""},
}
