// What frozen layers make of samples, kept over the epochs of a run by two processes: each row is what the layers make
// of that view of that sample, and as many are found as sets of the samples seen before say.
#include "train/run/feature_reuse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "data/loader.h"
#include "models/model.h"
#include "support/files.h"
#include "train/setup/step_batch.h"

namespace sluice::train {
namespace {

using data::FeatureKey;
using pipeline::FrozenPrefix;
using pipeline::MicroBatch;
using testing::HasSubstr;

config::Config configured() {
  config::Config config;
  config.device.list.choice = "cpu";
  config.device.threads = 1;
  config.model.name = "resnet8";
  config.model.image_size = 12;
  config.model.channels = 1;
  config.data.name = "shapes";
  config.data.samples = 100;
  config.data.workers = 1;
  config.data.crop_padding = 2;
  config.data.flip = true;
  config.data.views = 3;
  config.train.precision = "fp64";
  config.train.epochs = 8;
  config.train.global_batch = 14;
  config.freeze.policy = "linear";
  config.freeze.cache = "memory";
  return config;
}

// The first layers of a model that is the same each time.
std::unique_ptr<FrozenPrefix> first_layers(const Setup& setup, int count) {
  auto layers = models::make_model(setup.model).layers;
  return std::make_unique<FrozenPrefix>(pipeline::take_first(layers, count), at::kCPU);
}

// What a slot of a pass does with its share.
at::Tensor features_of(FeatureReuse& reuse, const FrozenPrefix& prefix, const MicroBatch& share) {
  const auto found = reuse.find(share);
  if (found.missing.empty()) return found.rows.front();
  return reuse.complete(share, found, prefix.forward(found.inputs, nullptr)).front();
}

data::SampleReaderOptions reading(const Setup& setup) {
  data::SampleReaderOptions options = train_loader_options(setup).reading();
  options.dtype = at::kDouble;
  return options;
}

// One process of a run: its loader, its cache, and what has to be in it.
class Process {
 public:
  Process(const config::Config& config, int rank, int processes)
      : setup_(make_setup(config, {.rank = rank, .processes = processes})),
        reader_(*setup_.train_set, reading(setup_)),
        reuse_(setup_) {}

  [[nodiscard]] FeatureReuse& reuse() { return reuse_; }
  [[nodiscard]] const Setup& setup() const { return setup_; }
  [[nodiscard]] nlohmann::json counts() const { return nlohmann::json(reuse_.fields()); }
  [[nodiscard]] std::int64_t expected_hits() const { return hits_; }

  // All steps of an epoch with so many replicas, the samples of each over two devices in two micro-batches.
  void epoch(std::int64_t number, const FrozenPrefix& prefix, int replicas) {
    data::LoaderOptions options = train_loader_options(setup_, Plan{.replicas = replicas});
    options.features = reuse_.cache();
    data::Loader loader(*setup_.train_set, options, {.epoch = number, .batch = 0});
    for (std::int64_t i = 0; i < loader.batches(); ++i) {
      const data::Batch batch = *loader.next();
      for (const MicroBatch& of_replica : split(as_micro_batch(batch, *setup_.task), replicas)) {
        for (const MicroBatch& share : split(of_replica, 4)) {
          if (share.samples() > 0) check(share, prefix, features_of(reuse_, prefix, share));
        }
      }
      count(batch);
    }
  }

 private:
  void check(const MicroBatch& share, const FrozenPrefix& prefix, const at::Tensor& features) {
    std::vector<std::int64_t> ids(share.samples());
    std::copy_n(share.sample_ids.const_data_ptr<std::int64_t>(), ids.size(), ids.begin());
    const at::Tensor again = prefix.forward({reader_.read(ids, share.view).at("inputs")}, nullptr).tensors.front();
    ASSERT_EQ(features.sizes(), again.sizes());
    EXPECT_LE((features - again).abs().max().item<double>(), 1e-12);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto [first, is_new] = rows_.try_emplace({ids[i], share.view, prefix.layers().size()}, features[i].clone());
      EXPECT_TRUE(is_new || at::equal(features[i], first->second) || !stored(ids[i], share))
          << "a hit is what was kept";
    }
  }
  // Rows of the last epochs are not kept: their views do not come again.
  [[nodiscard]] bool stored(std::int64_t id, const MicroBatch& share) const { return seen_.contains({id, share.view}); }
  void count(const data::Batch& batch) {
    for (std::int64_t i = 0; i < batch.sample_ids.size(0); ++i) {
      const std::pair key{batch.sample_ids[i].item<std::int64_t>(), batch.view};
      hits_ += seen_.contains(key) ? 1 : 0;
      if (batch.view_repeats) seen_.insert(key);
    }
  }

  const Setup setup_;
  const data::SampleReader reader_;
  FeatureReuse reuse_;
  std::map<std::tuple<std::int64_t, int, std::size_t>, at::Tensor> rows_;  // as they were made first
  std::set<std::pair<std::int64_t, int>> seen_;
  std::int64_t hits_ = 0;
};

// Batches of 14 over two processes of one and later three replicas: shares of 7, and of 3, 2 and 2 samples.
void expect_hits_as_predicted(const config::Config& config) {
  std::vector<std::unique_ptr<Process>> processes;
  for (int rank = 0; rank < 2; ++rank) processes.push_back(std::make_unique<Process>(config, rank, 2));
  const auto prefix = first_layers(processes[0]->setup(), 3);
  for (auto& process : processes) process->reuse().follow(prefix.get());
  for (std::int64_t epoch = 0; epoch < 8; ++epoch) {
    for (auto& process : processes) process->epoch(epoch, *prefix, epoch < 4 ? 1 : 3);
  }
  std::int64_t all = 0, asked = 0;
  for (auto& process : processes) {
    const auto counts = process->counts();
    EXPECT_EQ(counts["hits"], process->expected_hits());
    asked += counts["hits"].get<std::int64_t>() + counts["misses"].get<std::int64_t>();
    EXPECT_LE(counts["memory_bytes"], config.freeze.cache_bytes.bytes);
    EXPECT_LE(counts["disk_bytes"], config.freeze.cache_disk_bytes.bytes);
    all += counts["hits"].get<std::int64_t>();
  }
  EXPECT_EQ(asked, 800) << "every sample once an epoch";
  EXPECT_GT(all, 400) << "of 500 whose view has been before";
}

TEST(FeatureReuse, TwoProcessesFindWhatTheyHaveSeen) { expect_hits_as_predicted(configured()); }

TEST(FeatureReuse, OnDiskToo) {
  const sluice::test::TempDir dir;
  config::Config config = configured();
  config.freeze.cache = "disk";
  config.freeze.cache_bytes.bytes = 1 << 20;
  config.freeze.cache_disk_bytes.bytes = 64 << 20;
  config.freeze.cache_dir = dir.path();
  expect_hits_as_predicted(config);
}

// One process without crops and flips, and what is kept of its first samples.
class FeatureReuseOfOne : public testing::Test {
 protected:
  static config::Config plain() {
    config::Config config = configured();
    config.data.crop_padding = 0;
    config.data.flip = false;
    config.data.views = 0;
    return config;
  }
  // Of the first `count` samples, as the loader reads them.
  [[nodiscard]] MicroBatch samples(std::int64_t count, int view = 0) const {
    std::vector<std::int64_t> ids(count);
    std::iota(ids.begin(), ids.end(), 0);
    const data::Dataset& set = view == data::kTestView ? *setup_.test_set : *setup_.train_set;
    const auto read = data::SampleReader(set, {.dtype = at::kDouble}).read(ids, view);
    return {
        .inputs = {read.at("inputs")}, .targets = {read.at("targets")}, .sample_ids = at::arange(count), .view = view};
  }
  [[nodiscard]] std::int64_t hits() const { return nlohmann::json(reuse_.fields())["hits"].get<std::int64_t>(); }
  // Hits of these samples, whose features have to be right.
  std::int64_t hits_of(const MicroBatch& share, const FrozenPrefix& prefix) {
    const std::int64_t before = hits();
    const at::Tensor features = features_of(reuse_, prefix, share);
    MicroBatch whole = samples(share.samples(), share.view);
    EXPECT_LE((features - prefix.forward(whole.inputs, nullptr).tensors.front()).abs().max().item<double>(), 1e-12);
    return hits() - before;
  }

  train::Setup setup_ = make_setup(plain());
  FeatureReuse reuse_{setup_};
};

TEST_F(FeatureReuseOfOne, RowsGrowWithTheLayers) {
  const auto two = first_layers(setup_, 2), four = first_layers(setup_, 4);
  reuse_.follow(two.get());
  EXPECT_EQ(hits_of(samples(10), *two), 0);
  EXPECT_EQ(hits_of(samples(12), *two), 10);
  reuse_.follow(four.get());
  EXPECT_EQ(hits_of(samples(20), *four), 12) << "of four layers now";
  reuse_.follow(four.get());
  EXPECT_EQ(hits_of(samples(20), *four), 20) << "the same layers once more change nothing";
}

TEST_F(FeatureReuseOfOne, RowsOfOtherWeightsAreDropped) {
  const auto prefix = first_layers(setup_, 4);
  const auto drops = [&](const std::string& what) {
    reuse_.follow(prefix.get());
    EXPECT_EQ(hits_of(samples(8), *prefix), 0) << what;
    EXPECT_EQ(hits_of(samples(8), *prefix), 8) << what;
  };
  drops("nothing was there");
  const at::NoGradGuard no_grad;
  prefix->layers()[1]->parameters().front()->value.add_(1e-9);
  drops("a weight has changed");
  nn::Buffer* statistics = nullptr;
  for (const auto& layer : prefix->layers()) {
    if (!layer->buffers().empty()) statistics = layer->buffers().front();
  }
  ASSERT_NE(statistics, nullptr);
  statistics->value.add_(1e-9);
  drops("a running statistic has changed");
  const auto fewer = first_layers(setup_, 2);
  reuse_.follow(fewer.get());
  EXPECT_EQ(hits_of(samples(8), *fewer), 0) << "layers have thawed";
  reuse_.follow(nullptr);
  reuse_.follow(fewer.get());
  EXPECT_EQ(hits_of(samples(8), *fewer), 0) << "all had thawed";
}

// More layers behind a changed one are no growth.
TEST_F(FeatureReuseOfOne, GrowthOverAChangedLayerBeginsAnew) {
  const auto two = first_layers(setup_, 2), four = first_layers(setup_, 4);
  reuse_.follow(two.get());
  EXPECT_EQ(hits_of(samples(8), *two), 0);
  {
    const at::NoGradGuard no_grad;
    four->layers()[0]->parameters().front()->value.add_(0.5);
  }
  reuse_.follow(four.get());
  EXPECT_EQ(hits_of(samples(8), *four), 0);
}

TEST_F(FeatureReuseOfOne, TestSamplesAreOthersThanTrainingSamplesOfTheSameNumber) {
  const auto prefix = first_layers(setup_, 3);
  reuse_.follow(prefix.get());
  EXPECT_EQ(hits_of(samples(6), *prefix), 0);
  EXPECT_EQ(hits_of(samples(6, data::kTestView), *prefix), 0);
  EXPECT_EQ(hits_of(samples(6, data::kTestView), *prefix), 6);
  EXPECT_EQ(hits_of(samples(6), *prefix), 6);
}

TEST_F(FeatureReuseOfOne, WhatDoesNotComeAgainIsNotKept) {
  const auto prefix = first_layers(setup_, 3);
  reuse_.follow(prefix.get());
  MicroBatch last = samples(6);
  last.view_repeats = false;
  EXPECT_EQ(hits_of(last, *prefix), 0);
  EXPECT_EQ(hits_of(last, *prefix), 0);
}

// The disk may fail between the loader's look and the step.
TEST_F(FeatureReuseOfOne, InputsThatWereLeftOutAreReadWhereTheRowIsGone) {
  const auto prefix = first_layers(setup_, 3);
  reuse_.follow(prefix.get());
  for (const bool some_are_kept : {false, true}) {
    if (some_are_kept) {
      EXPECT_EQ(hits_of(samples(2), *prefix), 2);
    }
    MicroBatch left_out = samples(6);
    left_out.without_inputs = {true, false, true, true, false, true};
    for (std::int64_t i = 0; i < 6; ++i) {
      if (left_out.without_inputs[i]) left_out.inputs[0][i].fill_(std::numeric_limits<double>::quiet_NaN());
    }
    const at::Tensor before = left_out.inputs[0].clone();
    EXPECT_EQ(hits_of(left_out, *prefix), some_are_kept ? 6 : 0);
    EXPECT_TRUE(at::allclose(left_out.inputs[0], before, 0, 0, /*equal_nan=*/true)) << "the caller's stay";
  }
}

TEST_F(FeatureReuseOfOne, ARowThatCannotGrowBeginsAnew) {
  const auto two = first_layers(setup_, 2), four = first_layers(setup_, 4);
  reuse_.follow(two.get());
  EXPECT_EQ(hits_of(samples(8), *two), 0);
  const at::Tensor whole = std::exchange(four->layers()[2]->parameters().front()->value, at::zeros({1}, at::kDouble));
  testing::internal::CaptureStderr();
  reuse_.follow(four.get());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("starts empty"));
  four->layers()[2]->parameters().front()->value = whole;
  EXPECT_EQ(hits_of(samples(8), *four), 0);
  EXPECT_EQ(hits_of(samples(8), *four), 8);
}

TEST(CachePayoff, IsDecidedByWhatRowsTakeWithoutTheFirstCall) {
  for (const double kept_s : {0.5, 2.0}) {
    CachePayoff payoff;
    payoff.add(100, 0, 1000);  // maps memory
    EXPECT_FALSE(payoff.pays().has_value());
    for (int call = 0; call < 2; ++call) payoff.add(20, 1.0, kept_s);
    EXPECT_FALSE(payoff.pays().has_value()) << "too few calls";
    payoff.add(20, 1.0, kept_s);
    EXPECT_EQ(payoff.pays(), kept_s < 1);
    EXPECT_THAT(payoff.in_words(), HasSubstr("50.000 ms"));
  }
  CachePayoff small;
  for (int call = 0; call < 30; ++call) small.add(1, 1, 0);
  EXPECT_FALSE(small.pays().has_value()) << "too few rows";
  for (int call = 0; call < 10; ++call) small.add(1, 1, 0);
  EXPECT_EQ(small.pays(), true);
}

// layers_s: what the frozen layers take for the samples of a step. What was logged; rows_kept: in the end.
std::string run_auto(double layers_s, std::int64_t& rows_kept) {
  config::Config config = configured();
  config.data = {.name = "shapes"};
  config.freeze.cache = "auto";
  const train::Setup setup = make_setup(config);
  FeatureReuse reuse(setup);
  const auto prefix = first_layers(setup, 1);
  reuse.follow(prefix.get());
  std::int64_t batches = 0;
  data::LoaderOptions options = train_loader_options(setup);
  options.features = reuse.cache();
  options.endless = false;
  data::Loader loader(*setup.train_set, options);
  testing::internal::CaptureStderr();
  while (const auto batch = loader.next()) {
    const MicroBatch all = as_micro_batch(*batch, *setup.task);
    const auto found = reuse.find(all);
    const at::Tensor made = at::ones({static_cast<std::int64_t>(found.missing.size()), 4096}, at::kDouble);
    pipeline::FeatureSource::Found looked_for = found;
    looked_for.since = now_ns() - static_cast<Nanoseconds>(layers_s * 1e9);
    EXPECT_EQ(reuse.complete(all, looked_for, {{made}, {FrozenPrefix::kMade}}).front().size(0), all.samples());
    if (++batches == 12) break;
  }
  rows_kept = nlohmann::json(reuse.fields())["rows_in_memory"].get<std::int64_t>();
  return testing::internal::GetCapturedStderr();
}

TEST(FeatureReuse, AutoKeepsWhatPays) {
  std::int64_t rows = 0;
  EXPECT_THAT(run_auto(/*layers_s=*/100, rows), HasSubstr("so the cache is used for these 1 layers"));
  EXPECT_EQ(rows, 12 * 14);
  EXPECT_THAT(run_auto(/*layers_s=*/0, rows), HasSubstr("so the cache is not used for these 1 layers"));
  EXPECT_EQ(rows, 0);
}

}  // namespace
}  // namespace sluice::train
