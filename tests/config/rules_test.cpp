// The rules between keys: one case per way to break one, each with its message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/config.h"
#include "config/reject_support.h"
#include "core/concat.h"

namespace sluice::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(RejectRule, LengthOfTheRun) {
  EXPECT_EQ(error_of("[train]\nepochs = 0\n"),
            "run.toml:2: train.epochs and train.steps are both 0; set one of them above 0");
  EXPECT_EQ(error_of("[train]\nepochs = 0\nsteps = 1\n"), "accepted");
  EXPECT_THAT(error_of("[train]\nsteps = 10\nwarmup_steps = 11\n"),
              HasSubstr("run.toml:3: train.warmup_steps=11 > train.steps=10"));
}

TEST(RejectRule, LengthsOfTheLearningRateAreSaidOnce) {
  EXPECT_THAT(error_of("[train]\nwarmup_steps = 3\nwarmup_epochs = 0.5\n"), HasSubstr("are both set"));
  EXPECT_EQ(error_of("[train]\nwarmup_epochs = 0.5\n"), "accepted");
  const std::string step = "[train]\nlr_schedule = 'step'\n", exponential = "[train]\nlr_schedule = 'exponential'\n";
  EXPECT_THAT(error_of(step), HasSubstr("needs train.lr_decay_steps"));
  EXPECT_EQ(error_of(step + "lr_decay_epochs = [30, 60]\n"), "accepted");
  EXPECT_THAT(error_of(step + "lr_decay_epochs = [30, 30]\n"), HasSubstr("must rise"));
  EXPECT_THAT(error_of(step + "lr_decay_epochs = [30]\nlr_decay_every = 5\n"), HasSubstr("more than one of"));
  EXPECT_THAT(error_of(step + "lr_decay_every_epochs = 3\nlr_decay_every = 5\n"), HasSubstr("more than one of"));
  EXPECT_THAT(error_of(exponential + "lr_decay_epochs = [30]\n"), HasSubstr("needs train.lr_decay_every or"));
  EXPECT_EQ(error_of(exponential + "lr_decay_every = 3\nlr_power = 2\n"),
            "run.toml:4: train.lr_power is set, but train.lr_schedule=\"exponential\" does not use it; remove it or "
            "choose polynomial");
  for (const std::string key : {"lr_decay_steps = [3]", "lr_decay_epochs = [3]", "lr_decay_every = 3",
                                "lr_decay_every_epochs = 3", "lr_power = 2", "lr_min = 0.001"})
    EXPECT_THAT(error_of("[train]\n" + key + "\n"), HasSubstr("train.lr_schedule=\"constant\" does not use it")) << key;
  EXPECT_EQ(error_of("[train]\nlr_schedule = 'cosine'\nlr_min = 0.001\n"), "accepted");
  EXPECT_EQ(error_of(exponential + "lr_decay_every_epochs = 3\n"), "accepted");
}

TEST(RejectRule, TheSameBitsForAnyLayoutNeedFixedMicroBatchesAndNothingThatKnowsTheLayout) {
  const std::string train = "[train]\nreproducible = 'layout'\n", device = "[device]\nthreads = 1\n";
  const std::string both = train + "micro_batch = 4\n" + device;
  EXPECT_EQ(error_of(both), "accepted");
  EXPECT_THAT(error_of(train + device), HasSubstr("needs train.micro_batch"));
  EXPECT_THAT(error_of(train + "micro_batch = 4\n"), HasSubstr("needs device.threads"));
  EXPECT_THAT(error_of(both + "cuda_graphs = true\n"), HasSubstr("cannot be combined with device.cuda_graphs=true"));
  EXPECT_THAT(error_of(both + "[pipeline]\nbatch_norm = 'sync'\n"), HasSubstr("pipeline.batch_norm=\"sync\""));
  EXPECT_THAT(
      error_of(train + "micro_batch = 4\nsteps = 4\n" + device + "[replicas]\nsync = 'ps'\n[ps]\nclock = 'virtual'\n"),
      HasSubstr("cannot be combined with replicas.sync=\"ps\""));
  EXPECT_THAT(error_of(train + "micro_batch = 4\nnoise_scale_every_steps = 5\n" + device),
              HasSubstr("train.noise_scale_every_steps"));
  for (const std::string policy : {"gradient", "gradient-change"})
    EXPECT_THAT(error_of(both + "[freeze]\npolicy = '" + policy + "'\n"),
                HasSubstr("cannot be combined with train.reproducible"));
  const std::string cache = "[freeze]\npolicy = 'linear'\ncache = 'memory'\n";
  EXPECT_EQ(error_of(both + cache), "accepted");
  EXPECT_THAT(error_of(both + cache + "cache_precision = 'bf16'\n"), HasSubstr("choose \"full\""));
  EXPECT_EQ(error_of(both + "[log]\ndigest_layers = true\n"), "accepted");
  EXPECT_THAT(error_of(both + "[log]\ndigest_layers = true\ndigest_every = 0\n"),
              HasSubstr("log.digest_every above 0"));
  EXPECT_THAT(error_of("[log]\ndigest_layers = true\n"), HasSubstr("train.reproducible=\"layout\""));
}

TEST(RejectRule, KeysOfAdaptersNeedARank) {
  const std::string adapters = "[model]\nweights = 'base'\nlora_rank = 8\n";
  EXPECT_EQ(error_of(adapters + "lora_targets = ['query']\nlora_alpha = 16\nlora_weights = 'run'\n"), "accepted");
  for (const std::string key : {"lora_targets = ['query']", "lora_alpha = 16", "lora_dropout = 0.1"})
    EXPECT_THAT(error_of("[model]\n" + key + "\n"), HasSubstr("is set, but model.lora_rank=0 makes no adapters"))
        << key;
  EXPECT_THAT(error_of("[model]\nlora_rank = 8\nlora_weights = 'run'\n"), HasSubstr("but model.weights is empty"));
  EXPECT_THAT(error_of(adapters + "[train]\nsteps = 4\n[replicas]\nsync = 'ps'\n[ps]\nclock = 'virtual'\n"),
              HasSubstr("run.toml:3: model.lora_rank=8 freezes weights"));
  EXPECT_THAT(
      error_of("[data]\nby_length = true\n[train]\nsteps = 4\n[replicas]\nsync = 'ps'\n[ps]\nclock = 'virtual'\n"),
      HasSubstr("run.toml:2: data.by_length does not apply to a parameter server"));
}

TEST(RejectRule, RandomViewsOfImages) {
  EXPECT_THAT(error_of("[data]\ncrop_area = 0.08\ncrop_padding = 4\n"), HasSubstr("both are random crops"));
  EXPECT_EQ(error_of("[data]\nviews = 3\nrand_augment = 2\n"), "accepted");
  EXPECT_THAT(error_of("[data]\nviews = 3\n"), HasSubstr("all views of a sample are the same"));
  EXPECT_THAT(error_of("[data]\nbroken = 'skip'\n[freeze]\npolicy = 'linear'\ncache = 'memory'\n"),
              HasSubstr("another sample may replace it"));
  EXPECT_THAT(error_of("[data]\nerasing = 0.1\n[freeze]\npolicy = 'linear'\ncache = 'memory'\n"),
              HasSubstr("new in each epoch"));
}

TEST(RejectRule, RecipesOfWholeBatchesAndParametersAreNotForAParameterServer) {
  const std::string ps = "[replicas]\nsync = 'ps'\n[ps]\nclock = 'virtual'\n";
  EXPECT_EQ(error_of("[train]\nsteps = 4\n" + ps), "accepted");
  for (const std::string key : {"optimizer = 'lamb'", "no_decay = ['bias']", "head_lr = 2", "ema_decay = 0.9",
                                "lr_schedule = 'plateau'", "stop_patience = 2", "noise_scale_every_steps = 1"})
    EXPECT_THAT(error_of("[train]\nsteps = 4\n" + key + "\n" + ps), HasSubstr("replicas.sync=\"ps\"")) << key;
  for (const std::string key : {"mixup = 0.2", "cutmix = 1", "order = 'shards'"})
    EXPECT_THAT(error_of("[train]\nsteps = 4\n[data]\n" + key + "\n" + ps), HasSubstr("replicas.sync=\"ps\"")) << key;
}

TEST(RejectRule, RecipesThatContradictThemselves) {
  EXPECT_THAT(error_of("[train]\namsgrad = true\n"), HasSubstr("is for train.optimizer=\"adam\""));
  EXPECT_EQ(error_of("[train]\namsgrad = true\noptimizer = 'adamw'\n"), "accepted");
  EXPECT_THAT(error_of("[train]\nema_every_steps = 2\n"), HasSubstr("keeps no average"));
  EXPECT_THAT(error_of("[train]\nema_decay = 0.9\n[freeze]\npolicy = 'linear'\n"),
              HasSubstr("no average of their own"));
  EXPECT_THAT(error_of("[train]\neval_every_steps = 2\neval_every_epochs = 2\n"), HasSubstr("both set"));
  EXPECT_THAT(error_of("[train]\nlr_patience = 2\n"), HasSubstr("is for train.lr_schedule=\"plateau\""));
  EXPECT_THAT(error_of("[train]\nno_decay = ['bais']\n"), HasSubstr("did you mean 'bias'"));
  EXPECT_THAT(error_of("[data]\nshuffle_window = 7\n"), HasSubstr("is for data.order=\"shards\""));
  EXPECT_THAT(error_of("[data]\nmixup = 0.2\n[freeze]\npolicy = 'linear'\ncache = 'memory'\n"),
              HasSubstr("no mix of two samples repeats"));
}

// One line of a sweep overrides what the file has for another value of that key.
TEST(RejectRule, ASetOverridesWhatOnlyAnotherValueOfItsKeyReads) {
  const auto loaded = [](const std::string& text, std::vector<std::string> sets) {
    return parse(text, "run.toml", sets);
  };
  const std::string schedule = "[freeze]\npolicy = 'schedule'\nschedule = ['3: 7']\n";
  for (const char* policy : {"none", "linear"}) {
    const Config config = loaded(schedule, {concat("freeze.policy=", policy)});
    EXPECT_EQ(config.freeze.policy, policy);
    EXPECT_TRUE(config.freeze.schedule.empty());
    EXPECT_NO_THROW(validate(config));
  }
  EXPECT_EQ(loaded("[train]\nema_decay = 0.9\nema_every_steps = 5\n", {"train.ema_decay=0"}).train.ema_every_steps, 1);
  EXPECT_FALSE(loaded("[train]\noptimizer = 'momentum'\nnesterov = true\n", {"train.optimizer=adamw"}).train.nesterov);
  EXPECT_FALSE(loaded("[train]\noptimizer = 'adamw'\namsgrad = true\n", {"train.optimizer=lamb"}).train.amsgrad);
  EXPECT_EQ(loaded("[train]\nlr_schedule = 'cosine'\nlr_min = 0.001\n", {"train.lr_schedule=constant"}).train.lr_min,
            0);
  EXPECT_EQ(loaded("[train]\nlr_schedule = 'step'\nlr_decay_steps = [7]\n", {"train.lr_schedule=cosine"})
                .train.lr_decay_steps.size(),
            0U);
  EXPECT_EQ(loaded("[data]\norder = 'shards'\nshuffle_window = 7\n", {"data.order=shuffled"}).data.shuffle_window,
            DataConfig{}.shuffle_window);
  EXPECT_THAT(error_of("[freeze]\nschedule = ['3: 7']\n", {"train.lr=1"}),
              HasSubstr("run.toml:2: freeze.schedule is for"))
      << "nothing freezes in such a run, which the file does not say";
  EXPECT_THAT(error_of("", {"freeze.policy=linear", "freeze.schedule=['3: 7']"}), HasSubstr("freeze.schedule is for"));
}

TEST(RejectRule, FreezingGoesWithItsScheduleAndNoOtherPlanOfChanges) {
  EXPECT_THAT(error_of("[freeze]\npolicy = 'schedule'\n"),
              HasSubstr(R"(freeze.policy="schedule" needs freeze.schedule, for example ["3: 7", "5: 9"])"));
  EXPECT_THAT(error_of("[freeze]\nschedule = ['3: 7']\n"),
              HasSubstr(R"(freeze.schedule is for freeze.policy="schedule"; found "none")"));
  EXPECT_THAT(error_of("[pipeline]\nchanges = ['20: stages = 2']\n[freeze]\npolicy = 'linear'\n"),
              HasSubstr("both change the plan"));
  EXPECT_THAT(error_of("[pipeline]\norder = 'mine'\n[freeze]\npolicy = 'linear'\n"),
              HasSubstr("a schedule file has a fixed number"));
  EXPECT_THAT(error_of("[freeze]\nalpha = 0\n"), HasSubstr("freeze.alpha"));
  const std::string linear = "[freeze]\npolicy = 'linear'\n";
  EXPECT_EQ(error_of("[freeze]\ncache = 'memory'\n"), "accepted") << "with a policy for comparison";
  EXPECT_THAT(error_of(linear + "cache = 'memory'\ncache_bytes = 0\n"), HasSubstr("needs freeze.cache_bytes above 0"));
  EXPECT_THAT(error_of(linear + "cache = 'disk'\n"), HasSubstr("needs freeze.cache_disk_bytes, for example"));
  EXPECT_THAT(error_of(linear + "cache = 'memory'\ncache_disk_bytes = 1\n"),
              HasSubstr("is for freeze.cache=\"disk\" or \"auto\""));
  EXPECT_THAT(error_of(linear + "cache = 'auto'\n[train]\ndeterministic = true\n"), HasSubstr("an empty cache"));
  for (const char* data : {"flip = true", "crop_padding = 1"}) {
    EXPECT_THAT(error_of(linear + "cache = 'auto'\n[data]\n" + data), HasSubstr("no view would repeat"));
    EXPECT_EQ(error_of(linear + "cache = 'auto'\n[data]\nviews = 1\n" + data), "accepted");
  }
  EXPECT_EQ(error_of(linear + "cache = 'auto'\n"), "accepted");
  EXPECT_THAT(error_of("[data]\nviews = 2\n"), HasSubstr("all views of a sample are the same"));
}

TEST(RejectRule, PartitionHasAnEntryPerStage) {
  EXPECT_EQ(error_of("[pipeline]\nstages = 3\npartition = [1, 2]\n"),
            "run.toml:3: pipeline.partition has 2 entries, but pipeline.stages=3; list one number of layers per stage");
}

TEST(RejectRule, AListOfStagesThatRecomputeHasAWordForEach) {
  const std::string two = "[pipeline]\nstages = 2\npartition = [1, 2]\n";
  EXPECT_EQ(error_of(two + "recompute = [\"layer\", \"none\"]\n"), "accepted");
  EXPECT_EQ(error_of(two + "recompute = [\"layer\"]\n"),
            "run.toml:4: pipeline.recompute has 1 entries, but pipeline.partition has 2; list one word per stage");
  EXPECT_THAT(error_of("[pipeline]\nstages = 2\nrecompute = [\"layer\", \"none\"]\n"),
              HasSubstr("pipeline.partition is \"auto\"; set the layers of each stage, too"));
  EXPECT_THAT(error_of(two + "recompute = [\"layer\", \"auto\"]\n"), HasSubstr("which is a word for all stages"));
  EXPECT_THAT(error_of(two + "recompute = [\"layer\", \"all\"]\n"), HasSubstr("\"all\" is unknown"));
  EXPECT_THAT(error_of(two + "recompute = []\n"), HasSubstr("or a list with one word per stage"));
  EXPECT_THAT(error_of(two + "recompute = [1, 0]\n"), HasSubstr("needs a string or an array of strings"));
  EXPECT_THAT(error_of(two + "recompute = [\"layer\", \"none\"]\n[freeze]\npolicy = \"linear\"\n"),
              HasSubstr("cannot be a list with freeze.policy=\"linear\""));
}

TEST(RejectRule, AnOrderIsTheSchedule) {
  EXPECT_EQ(error_of("[pipeline]\norder = \"mine.txt\"\nschedule = \"zb-h1\"\n"),
            "run.toml:2: pipeline.order=\"mine.txt\" cannot be combined with pipeline.schedule=\"zb-h1\": the file "
            "replaces the schedule; remove one of the two (\"1f1b\" is the default)");
  EXPECT_EQ(error_of("[pipeline]\norder = \"mine.txt\"\nschedule = \"1f1b\"\n"), "accepted");
}

TEST(RejectRule, ReplicasWithoutSyncWouldDriftApart) {
  EXPECT_EQ(error_of("[replicas]\nlocal = 2\nsync = \"none\"\n"),
            "run.toml:3: replicas.sync=\"none\" leaves replicas.local=2 replicas unsynchronised; use \"allreduce\" or "
            "replicas.local=1");
  EXPECT_EQ(error_of("[replicas]\nlocal = 1\nsync = \"none\"\n"), "accepted");
}

TEST(RejectRule, EveryMicroBatchHasASample) {
  EXPECT_EQ(error_of("[replicas]\nlocal = 65\n"),
            "run.toml:2: train.global_batch=64 < replicas.local=65; every replica needs a sample");
  EXPECT_EQ(
      error_of("[replicas]\nlocal = 2\n[pipeline]\nchunks = 33\n"),
      "run.toml:4: pipeline.chunks=33 x replicas.local=2 > train.global_batch=64; every micro-batch needs a sample");
}

TEST(RejectRule, MicroBatchAndChunksAgree) {
  EXPECT_EQ(error_of("[train]\nmicro_batch = 16\n"), "accepted");
  EXPECT_EQ(error_of("[train]\nmicro_batch = 16\n[pipeline]\nchunks = 4\n"), "accepted");
  EXPECT_EQ(error_of("[train]\nmicro_batch = 16\n[pipeline]\nchunks = 2\n"), "accepted");  // with two processes
  EXPECT_EQ(error_of("[train]\nmicro_batch = 16\n[pipeline]\nchunks = \"auto\"\n"), "accepted");
  EXPECT_EQ(error_of("[train]\nmicro_batch = 16\n[pipeline]\nchunks = 3\n"),
            "run.toml:2: train.micro_batch=16 contradicts pipeline.chunks=3: their product with replicas.local=1 does "
            "not divide train.global_batch=64; set only one of the two");
  EXPECT_THAT(error_of("[train]\nmicro_batch = 65\n"),
              HasSubstr("train.micro_batch=65 x replicas.local=1 > train.global_batch=64"));
}

TEST(RejectRule, NamedDevicesCoverTheGrid) {
  EXPECT_EQ(
      error_of("[pipeline]\nstages = 2\n[device]\nlist = [\"cpu:0\"]\n"),
      "run.toml:4: device.list names 1 devices, but pipeline.stages=2 x replicas.local=1 needs 2 per process; name "
      "one per stage and replica (repeats allowed)");
  EXPECT_EQ(error_of("[device]\nlist = [\"cpu:0\", \"cpu:1\"]\n"), "accepted");  // the first is taken
  EXPECT_EQ(error_of("[replicas]\nlocal = 2\n[device]\nlist = [\"cpu:0\", \"cpu:0\"]\n"), "accepted");
}

TEST(RejectRule, GraphsNeitherAskNorTell) {
  const std::string head = "[device]\ncuda_graphs = true\n";
  EXPECT_EQ(error_of(head), "accepted");
  EXPECT_EQ(
      error_of(head + "[pipeline]\nbatch_norm = \"deferred\"\n"),
      "run.toml:2: device.cuda_graphs=true cannot be combined with pipeline.batch_norm=\"deferred\", whose statistics "
      "leave the graph during a micro-batch; choose \"micro\" or device.cuda_graphs=false");
  EXPECT_THAT(error_of(head + "[pipeline]\nbatch_norm = \"sync\"\n"), HasSubstr("pipeline.batch_norm=\"sync\""));
  EXPECT_THAT(error_of(head + "[train]\nsteps = 1\n[replicas]\nsync = \"ps\"\n[ps]\nclock = \"virtual\"\n"),
              HasSubstr("run.toml:2: device.cuda_graphs=true cannot be combined with replicas.sync=\"ps\""));
  EXPECT_THAT(error_of(head + "[profile]\nlevel = \"torch\"\n"),
              HasSubstr("cannot be combined with profile.level=\"torch\""));
  EXPECT_EQ(error_of(head + "[profile]\nlevel = \"cupti\"\n"), "accepted");
  EXPECT_EQ(error_of("[device]\ncuda_graphs = false\n[pipeline]\nbatch_norm = \"sync\"\n"), "accepted");
}

TEST(RejectRule, ADeviceListIsNotEmpty) {
  Config config;
  config.device.list = {.choice = "", .names = {}};
  EXPECT_THROW(validate(config), ConfigError);
}

TEST(RejectRule, OptimizerAndLearningRate) {
  EXPECT_THAT(error_of("[train]\nnesterov = true\noptimizer = \"sgd\"\n"),
              HasSubstr("run.toml:2: train.nesterov=true needs train.optimizer=\"momentum\""));
  EXPECT_THAT(error_of("[train]\nlr_min = 0.5\n"), HasSubstr("train.lr_min=0.5 > train.lr=0.01"));
  EXPECT_THAT(error_of("[train]\nlr_schedule = \"step\"\n"), HasSubstr("needs train.lr_decay_steps"));
  EXPECT_THAT(error_of("[train]\nlr_schedule = \"step\"\nlr_decay_steps = [2, 2]\n"), HasSubstr("must rise"));
}

TEST(RejectRule, WhatIsCompressedIsASum) {
  const std::string head = "train.steps = 1\nreplicas.sync = \"ps\"\nps.clock = \"virtual\"\n";
  EXPECT_EQ(error_of(head + "ps.push_compression = \"topk\"\nps.topk_ratio = 1\nps.policy = \"diloco\"\n"), "accepted");
  EXPECT_THAT(error_of(head + "ps.pull_compression = \"bf16\"\nps.policy = \"local_sgd\"\n"),
              HasSubstr("run.toml:4: "));
  EXPECT_THAT(error_of(head + "ps.push_compression = \"bf16\"\nps.topk_ratio = 0.5\n"), HasSubstr("remove it"));
}

TEST(RejectRule, WhereIsTheFileWhenOnlyDefaultsClash) {
  EXPECT_THAT(error_of("", {"train.epochs=0"}), StartsWith("--set train.epochs=0: "));
  Config config;
  config.train.epochs = 0;
  try {
    validate(config);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), StartsWith("configuration: train.epochs and train.steps are both 0"));
  }
}

}  // namespace
}  // namespace sluice::config
