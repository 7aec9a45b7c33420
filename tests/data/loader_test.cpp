#include "data/loader.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <thread>

#include "core/error.h"
#include "data/shapes.h"

namespace sluice::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Images that contain their index; sample `broken` cannot be read.
class NumberedDataset final : public Dataset {
 public:
  explicit NumberedDataset(std::int64_t size, std::int64_t broken = -1, std::int64_t side = 4)
      : size_(size), broken_(broken) {
    info_ = {
        .name = "numbered", .channels = 1, .height = side, .width = side, .classes = 10, .mean = {0}, .stddev = {1}};
  }
  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    if (index == broken_) throw DataError("the file is damaged");
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(index + static_cast<int>(i));
  }
  [[nodiscard]] std::int64_t target(std::int64_t index) const override { return index % 10; }

 private:
  DatasetInfo info_;
  std::int64_t size_;
  std::int64_t broken_;
};

const AugmentOptions kAugment{.crop_padding = 2, .horizontal_flip = true};

std::vector<Batch> take(Loader& loader, std::int64_t count) {
  std::vector<Batch> batches;
  while (std::ssize(batches) < count) {
    auto batch = loader.next();
    if (!batch) break;
    batches.push_back(*std::move(batch));
  }
  return batches;
}

std::vector<std::int64_t> ids_of(const std::vector<Batch>& batches) {
  std::vector<std::int64_t> ids;
  for (const auto& batch : batches) {
    const auto* first = batch.sample_ids.const_data_ptr<std::int64_t>();
    ids.insert(ids.end(), first, first + batch.sample_ids.size(0));
  }
  return ids;
}

void expect_same(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].epoch, b[i].epoch);
    EXPECT_EQ(a[i].batch, b[i].batch);
    EXPECT_TRUE(at::equal(a[i].sample_ids, b[i].sample_ids)) << i;
    EXPECT_TRUE(at::equal(a[i].at("targets"), b[i].at("targets"))) << i;
    EXPECT_TRUE(at::equal(a[i].at("inputs"), b[i].at("inputs"))) << i;
  }
}

TEST(Loader, AnEvaluationPassGivesEverySampleOnceInOrder) {
  const NumberedDataset dataset(10);
  Loader loader(dataset, {.batch_size = 4, .endless = false, .shuffle = false, .dtype = at::kDouble});
  const auto batches = take(loader, 99);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(loader.batches(), 3);
  EXPECT_EQ(ids_of(batches), sequential_order(10));
  const auto& last = batches.back();
  EXPECT_EQ(last.at("inputs").sizes(), (at::IntArrayRef{2, 1, 4, 4}));
  EXPECT_EQ(last.at("inputs").scalar_type(), at::kDouble);
  EXPECT_EQ(last.batch, 2);
  EXPECT_EQ(last.batches, 3);
  EXPECT_EQ(last.global_size, 2);
  EXPECT_EQ(last.at("targets")[1].item<std::int64_t>(), 9);
  EXPECT_EQ(last.at("inputs")[1][0][0][3].item<double>(), 12.0 / 255.0);
  EXPECT_FALSE(loader.next());
}

TEST(Loader, TrainingGoesThroughTheOrderOfEpochAfterEpoch) {
  const NumberedDataset dataset(10);
  Loader loader(dataset, {.batch_size = 4, .seed = 5});
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    const auto batches = take(loader, 3);
    EXPECT_EQ(ids_of(batches), epoch_order(5, epoch, 10));
    for (const auto& batch : batches) EXPECT_EQ(batch.epoch, epoch);
  }
}

TEST(Loader, BatchesAreBitEqualForAnyNumberOfThreads) {
  const auto dataset = make_shapes({.samples = 50, .image_size = 16}, Split::kTrain);
  LoaderOptions options{.batch_size = 8, .threads = 0, .augment = kAugment, .seed = 3};
  Loader plain(*dataset, options);
  const auto expected = take(plain, 20);  // nearly three epochs
  for (const int threads : {1, 2, 3, 7}) {
    for (const int prefetch : {1, 4, 17}) {
      options.threads = threads;
      options.prefetch = prefetch;
      Loader loader(*dataset, options);
      expect_same(take(loader, 20), expected);
    }
  }
}

TEST(Loader, AugmentationChangesWithTheEpoch) {
  const NumberedDataset dataset(4);
  Loader loader(dataset, {.batch_size = 4, .shuffle = false, .augment = kAugment});
  const auto batches = take(loader, 2);
  EXPECT_FALSE(at::equal(batches[0].at("inputs"), batches[1].at("inputs")));
}

TEST(Loader, ResumingInTheMiddleContinuesExactly) {
  const NumberedDataset dataset(30);
  const LoaderOptions options{.batch_size = 4, .threads = 2, .augment = kAugment, .seed = 8};
  Loader whole(dataset, options);
  const auto expected = take(whole, 20);
  for (std::size_t done = 1; done < 17; ++done) {  // also after the last batch of an epoch
    Loader resumed(dataset, options, position_after(expected[done - 1]));
    expect_same(take(resumed, 3), {expected.begin() + static_cast<std::ptrdiff_t>(done),
                                   expected.begin() + static_cast<std::ptrdiff_t>(done) + 3});
  }
}

TEST(Loader, SharesOfProcessesMakeUpTheGlobalBatch) {
  const NumberedDataset dataset(11);
  LoaderOptions options{.batch_size = 4, .endless = false, .augment = kAugment, .seed = 2};
  Loader alone(dataset, options);
  options.share = {.first = 0, .count = 2, .parts = 3};
  Loader first(dataset, options);
  options.share = {.first = 2, .count = 1, .parts = 3};
  Loader second(dataset, options);
  for (const auto& batch : take(alone, 99)) {
    const auto a = first.next();
    const auto b = second.next();
    EXPECT_EQ(a->global_size, batch.at("inputs").size(0));
    EXPECT_TRUE(at::equal(at::cat({a->at("inputs"), b->at("inputs")}), batch.at("inputs")));
    EXPECT_TRUE(at::equal(at::cat({a->sample_ids, b->sample_ids}), batch.sample_ids));
  }
}

TEST(Loader, AFailingSampleIsNamedOnceAfterTheBatchesBeforeIt) {
  const NumberedDataset dataset(40, 21);
  for (const int threads : {0, 1, 3}) {
    Loader loader(dataset, {.batch_size = 4, .threads = threads, .shuffle = false});
    EXPECT_EQ(ids_of(take(loader, 5)), sequential_order(20));
    EXPECT_THAT([&] { loader.next(); },
                ThrowsMessage<Error>(AllOf(HasSubstr("sample 21 of numbered (train): the file is damaged"))));
    EXPECT_THROW(loader.next(), BugError);
  }
}

// A loader that is destroyed early has threads that wait, read or have failed.
TEST(Loader, FailingOrUnreadLoadersDoNotHang) {
  const NumberedDataset dataset(40, 0);
  for (const int threads : {1, 2, 7}) {
    for (int round = 0; round < 20; ++round) {
      const Loader loader(dataset, {.batch_size = 2, .threads = threads, .prefetch = 3, .shuffle = round % 2 == 0});
    }
  }
}

// Its reads wait until the test opens the gate.
class GatedDataset final : public Dataset {
 public:
  explicit GatedDataset(std::shared_ptr<std::atomic<bool>> gate) : gate_(std::move(gate)) {}
  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return 4; }
  void read(std::int64_t, std::span<std::uint8_t>) const override { gate_->wait(false); }
  [[nodiscard]] std::int64_t target(std::int64_t) const override { return 0; }

 private:
  DatasetInfo info_{
      .name = "gated", .channels = 1, .height = 2, .width = 2, .classes = 1, .mean = {0.5}, .stddev = {0.5}};
  std::shared_ptr<std::atomic<bool>> gate_;
};

TEST(Loader, AReadThatHangsIsAbandonedWithItsDataset) {
  const auto gate = std::make_shared<std::atomic<bool>>(false);
  auto dataset = std::make_shared<const GatedDataset>(gate);
  const std::weak_ptr<const Dataset> watched = dataset;
  {
    Loader loader(*dataset, {.batch_size = 2, .threads = 1, .wait_limit = std::chrono::seconds{0}});
    EXPECT_THROW(loader.next(), DataError);
  }
  dataset.reset();
  for (int tries = 0; tries < 50; ++tries) std::this_thread::yield();
  *gate = true;
  gate->notify_all();
  for (int tries = 0; tries < 5000 && !watched.expired(); ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  EXPECT_TRUE(watched.expired());
}

TEST(Loader, RefusesOptionsThatCannotWork) {
  const NumberedDataset dataset(4);
  const auto loading = [&](const LoaderOptions& options) { return [&, options] { Loader(dataset, options); }; };
  EXPECT_THAT(loading({.batch_size = 0}), ThrowsMessage<ConfigError>(HasSubstr("a batch size of 0")));
  EXPECT_THAT(loading({.threads = -1}), ThrowsMessage<ConfigError>(HasSubstr("data.workers = -1")));
  EXPECT_THAT(loading({.prefetch = 0}), ThrowsMessage<ConfigError>(HasSubstr("a prefetch of 0")));
  EXPECT_THROW(Loader(NumberedDataset(0), {}), DataError);
  EXPECT_THROW(Loader(dataset, {.batch_size = 2}, {.epoch = 0, .batch = 3}), BugError);
}

std::ptrdiff_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

// at::empty fills new memory under deterministic algorithms. For large tensors, each loader thread then started an
// OpenMP team, which took cores from the device threads.
TEST(Loader, ThreadsStartNoThreadsOfTheirOwn) {
  if (!std::filesystem::exists("/proc/self/task")) GTEST_SKIP() << "needs /proc to count threads";
  at::globalContext().setDeterministicAlgorithms(true, false);
  const NumberedDataset dataset(4000, -1, 64);
  {
    const auto before = threads_of_this_process();
    Loader loader(dataset, {.batch_size = 64, .threads = 2});
    take(loader, 8);
    EXPECT_LE(threads_of_this_process(), before + 2);
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST(Loader, PreparesAFashionMnistEpochWellUnderASecondOfOneCore) {
  const NumberedDataset dataset(60000, -1, 28);
  const std::clock_t begin = std::clock();  // CPU time of all threads
  Loader loader(dataset, {.batch_size = 128, .threads = 1, .endless = false, .augment = kAugment});
  EXPECT_EQ(take(loader, 999).size(), 469U);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  RecordProperty("cpu_seconds", std::to_string(seconds));
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(seconds, 1.0);
#endif
}

std::vector<at::Tensor> inputs_of_epoch(const Dataset& dataset, const LoaderOptions& options, std::int64_t epoch) {
  Loader loader(dataset, options, {.epoch = epoch, .batch = 0});
  std::vector<at::Tensor> inputs(dataset.size());
  for (const Batch& batch : take(loader, loader.batches())) {
    for (std::int64_t i = 0; i < batch.at("inputs").size(0); ++i)
      inputs[batch.sample_ids[i].item<std::int64_t>()] = batch.at("inputs")[i];
  }
  return inputs;
}

TEST(Loader, SamplesTakeTheirViewsInTurn) {
  const NumberedDataset dataset(30, -1, 12);
  for (const std::int64_t views : {1, 3, 0}) {
    const LoaderOptions options{
        .batch_size = 8, .threads = 0, .augment = kAugment, .views = views, .seed = 3, .epochs = 7};
    std::vector<std::vector<at::Tensor>> epochs;
    for (std::int64_t epoch = 0; epoch < 7; ++epoch) epochs.push_back(inputs_of_epoch(dataset, options, epoch));
    for (std::int64_t epoch = 1; epoch < 7; ++epoch) {
      const std::int64_t like = views == 0 ? epoch : epoch % views;
      const auto& expected = views == 0 ? inputs_of_epoch(dataset, options, epoch) : epochs[like];
      int differ = 0;
      for (std::int64_t i = 0; i < 30; ++i) {
        EXPECT_TRUE(at::equal(epochs[epoch][i], expected[i])) << "epoch " << epoch << " sample " << i;
        differ += at::equal(epochs[epoch][i], epochs[epoch - 1][i]) ? 0 : 1;
      }
      EXPECT_EQ(differ > 20, views != 1) << "epoch " << epoch;
    }
    Loader loader(dataset, options);
    for (std::int64_t epoch = 0; epoch < 7; ++epoch) {
      const Batch batch = take(loader, loader.batches()).front();
      EXPECT_EQ(batch.view, views == 0 ? epoch : epoch % views);
      EXPECT_EQ(batch.view_repeats, views > 0 && epoch + views < 7) << "epoch " << epoch;
    }
  }
}

TEST(Loader, AViewIsOneOfAsManyAsThereWouldBeWithoutALimit) {
  const NumberedDataset dataset(10, -1, 12);
  LoaderOptions options{.batch_size = 4, .threads = 0, .augment = kAugment, .seed = 3};
  const auto unlimited = inputs_of_epoch(dataset, options, 1);
  options.views = 2;
  const auto limited = inputs_of_epoch(dataset, options, 5);
  for (std::int64_t i = 0; i < 10; ++i) EXPECT_TRUE(at::equal(limited[i], unlimited[i]));
}

TEST(Loader, WithoutCropsAndFlipsThereIsOneView) {
  const NumberedDataset dataset(10);
  Loader loader(dataset, {.batch_size = 4, .threads = 0, .epochs = 2});
  const auto batches = take(loader, 6);
  EXPECT_EQ(batches[0].view, 0);
  EXPECT_TRUE(batches[0].view_repeats);
  EXPECT_EQ(batches[3].view, 0);
  EXPECT_FALSE(batches[3].view_repeats) << "the run ends";
}

TEST(Loader, PixelsOfWhatIsKeptAreNotRead) {
  constexpr std::int64_t kBroken = 5;
  const NumberedDataset dataset(12, kBroken);
  const auto cache = std::make_shared<FeatureCache>(FeatureCacheOptions{.memory_bytes = 1 << 20});
  const LoaderOptions options{.batch_size = 6, .threads = 2, .shuffle = false, .epochs = 9, .features = cache};
  {
    Loader before(dataset, options);
    EXPECT_THROW(take(before, 1), Error) << "nothing is kept yet";
  }
  cache->use("a", {2}, at::kFloat);
  const std::vector<FeatureKey> kept{{kBroken, 0}, {2, 0}, {3, 1}, {4, kTestView}};  // views 1 and -1 are not asked for
  cache->store(kept, at::zeros({4, 2}));
  Loader loader(dataset, options);
  const Batch batch = take(loader, 1).front();
  EXPECT_EQ(batch.without_inputs, (std::vector<bool>{false, false, true, false, false, true}));
  for (std::int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(batch.at("inputs")[i].isnan().all().item<bool>(), batch.without_inputs[i]);
    EXPECT_EQ(batch.at("inputs")[i].isnan().any().item<bool>(), batch.without_inputs[i]);
    EXPECT_EQ(batch.at("targets")[i].item<std::int64_t>(), i) << "targets are there all the same";
  }
}

}  // namespace
}  // namespace sluice::data
