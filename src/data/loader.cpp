#include "data/loader.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"

namespace sluice::data {
namespace {

using Order = std::shared_ptr<const std::vector<std::int64_t>>;

// The order of each epoch, shared by the workers. Keeps the latest two, since batches at the turn of an epoch are made
// side by side; another one is drawn again.
class EpochOrders {
 public:
  EpochOrders(std::int64_t size, bool shuffle, std::uint64_t seed) : size_(size), shuffle_(shuffle), seed_(seed) {}

  Order get(std::int64_t epoch) {
    const std::int64_t key = shuffle_ ? epoch : 0;
    const std::scoped_lock lock(mutex_);
    for (const auto& [known, order] : recent_) {
      if (known == key) return order;
    }
    auto order = std::make_shared<const std::vector<std::int64_t>>(shuffle_ ? epoch_order(seed_, key, size_)
                                                                            : sequential_order(size_));
    constexpr std::size_t kKept = 2;
    if (recent_.size() == kKept) recent_.erase(recent_.begin());
    recent_.emplace_back(key, order);
    return order;
  }

 private:
  const std::int64_t size_;
  const bool shuffle_;
  const std::uint64_t seed_;
  std::mutex mutex_;
  std::vector<std::pair<std::int64_t, Order>> recent_;
};

// Adds which sample it was to the exception in flight.
[[noreturn]] void rethrow_with_sample(const DatasetInfo& info, std::int64_t index) {
  const auto where = concat("sample ", index, " of ", info.name, " (", name_of(info.split), ")");
  try {
    throw;
  } catch (const Error& error) {
    throw error.with_context(where);
  } catch (const std::bad_alloc&) {
    throw OutOfMemoryError(concat(where, ": no memory left to read it; use fewer data.workers or smaller batches"));
  } catch (const std::exception& error) {
    throw DataError(concat(where, ": ", error.what()));
  }
}

// at::empty without its fill, which under deterministic algorithms would start an OpenMP region.
at::Tensor uninitialized(at::IntArrayRef sizes, at::ScalarType dtype) { return at::detail::empty_cpu(sizes, dtype); }

LoaderOptions checked(const Dataset& dataset, const LoaderOptions& options, const Position& start) {
  if (dataset.size() == 0) throw DataError(concat("dataset ", dataset.info().name, " is empty; check data.path"));
  if (options.batch_size < 1) throw ConfigError(concat("a batch size of ", options.batch_size, "; set at least 1"));
  if (options.workers < 0) throw ConfigError(concat("data.workers = ", options.workers, "; set 0 or more"));
  if (options.prefetch < 1) throw ConfigError(concat("a prefetch of ", options.prefetch, " batches; set at least 1"));
  if (options.augment.crop_padding < 0) {
    throw ConfigError(concat("a crop padding of ", options.augment.crop_padding, " pixels; set 0 or more"));
  }
  const bool augments = options.augment.crop_padding > 0 || options.augment.horizontal_flip;
  if (augments && dataset.info().kind == SampleKind::kTokens) {
    throw ConfigError(concat("data.crop_padding and data.flip are for images, but data set ", dataset.info().name,
                             " has tokens; leave them out"));
  }
  check(options.dtype == at::kFloat || options.dtype == at::kDouble, "batches are float32 or float64");
  check(start.epoch >= 0 && start.batch >= 0 && start.batch <= batches_per_epoch(dataset.size(), options.batch_size),
        "a loader starts outside the epoch");
  return options;
}

}  // namespace

// Makes the batch of any position; stateless but for the cache of orders. Any number of threads at once.
class Loader::BatchMaker {
 public:
  BatchMaker(const Dataset& dataset, const LoaderOptions& options, const Position& start)
      : owner_(dataset.weak_from_this().lock()),
        dataset_(dataset),
        options_(checked(dataset, options, start)),
        batches_(batches_per_epoch(dataset.size(), options.batch_size)),
        start_(start.epoch * batches_ + start.batch),
        orders_(dataset.size(), options.shuffle, options.seed),
        floats_(dataset.info(), options.augment),
        doubles_(dataset.info(), options.augment) {}

  [[nodiscard]] std::int64_t batches() const { return batches_; }
  // How many batches the loader gives.
  [[nodiscard]] std::int64_t count() const {
    return options_.endless ? std::numeric_limits<std::int64_t>::max() : batches_ - start_ % batches_;
  }

  // The batch `number` places after the start. On a requested stop it is unfinished.
  Batch make(std::int64_t number, const std::stop_token& stop) {
    const std::int64_t ordinal = start_ + number;
    Batch result;
    result.epoch = ordinal / batches_;
    result.batch = ordinal % batches_;
    result.batches = batches_;
    const Slice whole = batch_slice(dataset_.size(), options_.batch_size, result.batch);
    const Slice mine = share_slice(whole.count, options_.share);
    const auto& info = dataset_.info();
    result.global_size = whole.count;
    result.sample_ids = uninitialized({mine.count}, at::kLong);

    const Order order = orders_.get(result.epoch);
    std::copy_n(order->begin() + whole.begin + mine.begin, mine.count,
                result.sample_ids.mutable_data_ptr<std::int64_t>());
    if (info.kind == SampleKind::kTokens) {
      fill_tokens(result, stop);
      return result;
    }
    result.inputs = uninitialized({mine.count, info.channels, info.height, info.width}, options_.dtype);
    result.targets = uninitialized({mine.count}, at::kLong);
    if (options_.dtype == at::kFloat) {
      fill(result, floats_, stop);
    } else {
      fill(result, doubles_, stop);
    }
    return result;
  }

 private:
  template <typename T>
  void fill(Batch& batch, const ViewWriter<T>& writer, const std::stop_token& stop) const {
    const auto size = static_cast<std::size_t>(dataset_.info().pixels());
    std::vector<std::uint8_t> pixels(size);
    const auto count = static_cast<std::size_t>(batch.sample_ids.size(0));
    const std::span ids(batch.sample_ids.const_data_ptr<std::int64_t>(), count);
    const std::span targets(batch.targets.mutable_data_ptr<std::int64_t>(), count);
    const std::span inputs(batch.inputs.template mutable_data_ptr<T>(), count * size);
    for (std::size_t i = 0; i < count && !stop.stop_requested(); ++i) {
      try {
        dataset_.read(ids[i], pixels);
        targets[i] = dataset_.target(ids[i]);
      } catch (...) {
        rethrow_with_sample(dataset_.info(), ids[i]);
      }
      writer.write(pixels, draw_view(options_.augment, options_.seed, batch.epoch, ids[i]),
                   inputs.subspan(i * size, size));
    }
  }

  void fill_tokens(Batch& batch, const std::stop_token& stop) const {
    const auto context = static_cast<std::size_t>(dataset_.info().context);
    const std::int64_t count = batch.sample_ids.size(0);
    batch.inputs = uninitialized({count, dataset_.info().context}, at::kLong);
    batch.targets = uninitialized({count, dataset_.info().context}, at::kLong);
    std::vector<std::uint8_t> tokens(context + 1);
    const std::span ids(batch.sample_ids.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(count));
    auto* input = batch.inputs.mutable_data_ptr<std::int64_t>();
    auto* target = batch.targets.mutable_data_ptr<std::int64_t>();
    for (std::size_t i = 0; i < ids.size() && !stop.stop_requested(); ++i) {
      try {
        dataset_.read(ids[i], tokens);
      } catch (...) {
        rethrow_with_sample(dataset_.info(), ids[i]);
      }
      std::copy(tokens.begin(), tokens.end() - 1, input + i * context);
      std::copy(tokens.begin() + 1, tokens.end(), target + i * context);
    }
  }

  const std::shared_ptr<const Dataset> owner_;  // empty: the caller keeps the dataset
  const Dataset& dataset_;
  const LoaderOptions options_;
  const std::int64_t batches_;
  const std::int64_t start_;  // counted in batches from the beginning of epoch 0
  EpochOrders orders_;
  const ViewWriter<float> floats_;
  const ViewWriter<double> doubles_;
};

Loader::Loader(const Dataset& dataset, const LoaderOptions& options, Position start)
    : maker_(std::make_shared<BatchMaker>(dataset, options, start)),
      prefetcher_(
          maker_->count(),
          [maker = maker_](std::int64_t number, const std::stop_token& stop) { return maker->make(number, stop); },
          {.workers = options.workers, .depth = options.prefetch, .wait_limit = options.wait_limit}) {}

Loader::~Loader() = default;

std::int64_t Loader::batches() const { return maker_->batches(); }

}  // namespace sluice::data
