#include "data/loader.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/error.h"

namespace sluice::data {
namespace {

using Order = std::shared_ptr<const std::vector<std::int64_t>>;

// Caches the order of two epochs, because batches around the end of an epoch are made concurrently.
class EpochOrders {
 public:
  EpochOrders(const Dataset& dataset, const LoaderOptions& options)
      : size_(dataset.size()),
        shuffle_(options.shuffle),
        seed_(options.seed),
        window_(options.shard_window),
        batch_size_(options.batch_size) {
    if (window_ > 0) shards_ = dataset.shard_begins();
    if (options.groups_by_length) lengths_ = dataset.lengths();
  }

  Order get(std::int64_t epoch) {
    const std::int64_t key = shuffle_ ? epoch : 0;
    const std::scoped_lock lock(mutex_);
    for (const auto& [known, order] : recent_) {
      if (known == key) return order;
    }
    auto order = std::make_shared<const std::vector<std::int64_t>>(make(key));
    constexpr std::size_t kKept = 2;
    if (recent_.size() == kKept) recent_.erase(recent_.begin());
    recent_.emplace_back(key, order);
    return order;
  }

 private:
  [[nodiscard]] std::vector<std::int64_t> make(std::int64_t epoch) const {
    if (!shuffle_) return sequential_order(size_);
    if (!lengths_.empty()) return length_order(seed_, epoch, lengths_, batch_size_);
    return window_ > 0 ? shard_order(seed_, epoch, size_, shards_, window_) : epoch_order(seed_, epoch, size_);
  }

  const std::int64_t size_;
  const bool shuffle_;
  const std::uint64_t seed_;
  const std::int64_t window_;
  const std::int64_t batch_size_;
  std::vector<int> lengths_;
  std::vector<std::int64_t> shards_;
  std::mutex mutex_;
  std::vector<std::pair<std::int64_t, Order>> recent_;
};

// This process's part of a batch.
std::vector<std::int64_t> own_samples(const std::vector<std::int64_t>& order, const LoaderOptions& options,
                                      std::int64_t batch) {
  const auto [begin, count] = batch_slice(std::ssize(order), options.batch_size, batch);
  const std::span all(order.data() + begin, static_cast<std::size_t>(count));
  if (options.keeps_samples_local) return samples_at_home(all, options.share);
  const Slice mine = share_slice(count, options.share);
  return {all.begin() + mine.begin, all.begin() + mine.begin + mine.count};
}

void check_numbers(const LoaderOptions& options) {
  if (options.batch_size < 1) throw ConfigError("a batch size of ", options.batch_size, "; set at least 1");
  if (options.threads < 0) throw ConfigError("data.workers = ", options.threads, "; set 0 or more");
  if (options.prefetch < 1) throw ConfigError("a prefetch of ", options.prefetch, " batches; set at least 1");
  if (options.augment.crop_padding < 0) {
    throw ConfigError("a crop padding of ", options.augment.crop_padding, " pixels; set 0 or more");
  }
}

LoaderOptions checked(const Dataset& dataset, const LoaderOptions& options, const Position& start) {
  if (dataset.size() == 0) throw DataError("dataset ", dataset.info().name, " is empty; check data.path");
  check_numbers(options);
  check_kind(dataset.info(), options);
  check(options.shard_window == 0 || !dataset.shard_begins().empty(), "a data set with shards if shard_window is set");
  check(!options.mix.is_any() || (!options.features && !options.keeps_samples_local),
        "no feature cache and no local samples if samples are mixed");
  check(options.dtype == at::kFloat || options.dtype == at::kDouble, "batches of float32 or float64");
  check(start.epoch >= 0 && start.batch >= 0 && start.batch <= batches_per_epoch(dataset.size(), options.batch_size),
        "a start position within an epoch");
  return options;
}

}  // namespace

double mean_width(const Dataset& dataset, const LoaderOptions& options) {
  const std::vector<int> lengths = dataset.lengths();
  if (lengths.empty()) return 0;
  const Order order = EpochOrders(dataset, options).get(0);
  const std::int64_t batches = batches_per_epoch(dataset.size(), options.batch_size);
  double sum = 0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    int longest = 0;
    for (const std::int64_t sample : own_samples(*order, options, batch)) longest = std::max(longest, lengths[sample]);
    sum += longest;
  }
  return sum / static_cast<double>(batches);
}

void check_kind(const DatasetInfo& info, const LoaderOptions& options) {
  if (info.kind == SampleKind::kImage) return;
  const char* const keys = options.augment.has_views()
                               ? "random views (data.crop_*, data.flip, data.brightness and similar keys)"
                           : options.mix.is_any() ? "data.mixup and data.cutmix"
                                                  : nullptr;
  if (keys != nullptr)
    throw ConfigError(keys, " are for images, but data set ", info.name, " has ", name_of(info.kind),
                      "; leave them out");
}

class Loader::BatchMaker {
 public:
  BatchMaker(const Dataset& dataset, const LoaderOptions& options, const Position& start)
      : options_(checked(dataset, options, start)),
        reader_(dataset, options.reading()),
        batches_(batches_per_epoch(dataset.size(), options.batch_size)),
        start_(start.epoch * batches_ + start.batch),
        orders_(dataset, options),
        team_(options.threads > 1 ? std::make_shared<Team>() : nullptr) {}

  [[nodiscard]] std::int64_t batches() const { return batches_; }
  [[nodiscard]] const std::shared_ptr<Team>& team() const { return team_; }
  [[nodiscard]] std::int64_t count() const {
    return options_.endless ? std::numeric_limits<std::int64_t>::max() : batches_ - start_ % batches_;
  }

  Batch make(std::int64_t number, const std::stop_token& stop) {
    const std::int64_t ordinal = start_ + number;
    Batch result;
    result.epoch = ordinal / batches_;
    result.batch = ordinal % batches_;
    result.batches = batches_;
    result.view = reader_.view_in(result.epoch);
    result.view_repeats = reader_.is_repeated(result.epoch, options_.epochs);
    result.global_size = whole(result.batch).count;
    result.first = share_slice(result.global_size, options_.share).begin;
    const std::vector<std::int64_t> ids = samples_of(result.epoch, result.batch);
    result.sample_ids = at::detail::empty_cpu({static_cast<std::int64_t>(ids.size())}, at::kLong, options_.pins);
    std::ranges::copy(ids, result.sample_ids.mutable_data_ptr<std::int64_t>());
    if (options_.features) result.without_inputs = options_.features->has(keys_of(ids, result.view));
    Samples samples = options_.mix.is_any() ? read_mixed(ids, result, stop)
                                            : reader_.read(ids, result.view, result.without_inputs, stop, team_.get());
    result.fields = std::move(samples.fields);
    result.pixel_scale = std::move(samples.pixel_scale);
    return result;
  }

  void announce(const Batch& from) {
    if (!options_.features || !options_.features->reads_ahead() || !options_.endless) return;
    std::vector<FeatureKey> keys;
    for (std::int64_t batch = from.batch; batch < batches_; ++batch) {
      std::ranges::copy(keys_of(samples_of(from.epoch, batch), from.view), std::back_inserter(keys));
    }
    options_.features->read_ahead(keys);
  }

 private:
  [[nodiscard]] Slice whole(std::int64_t batch) const {
    return batch_slice(reader_.dataset().size(), options_.batch_size, batch);
  }

  [[nodiscard]] std::vector<std::int64_t> samples_of(std::int64_t epoch, std::int64_t batch) {
    return own_samples(*orders_.get(epoch), options_, batch);
  }

  // Reads also the predecessor of the first sample, which may belong to another process.
  [[nodiscard]] Samples read_mixed(std::span<const std::int64_t> ids, const Batch& batch, const std::stop_token& stop) {
    const auto [begin, count] = whole(batch.batch);
    const std::int64_t mine = share_slice(count, options_.share).begin;
    std::vector<std::int64_t> with_first{orders_.get(batch.epoch)->at(begin + (mine + count - 1) % count)};
    with_first.insert(with_first.end(), ids.begin(), ids.end());
    const Samples samples = reader_.read(with_first, batch.view, {}, stop, team_.get());
    if (stop.stop_requested()) return {};  // unread samples have no class
    const at::Tensor &inputs = samples.at(kInputs), &targets = samples.at(kTargets);
    const ImageSize size{inputs.size(2), inputs.size(3)};
    const Mix mix = draw_mix(options_.mix, view_key("mix", options_.seed, batch.epoch, batch.batch), size);
    const std::int64_t classes = reader_.dataset().info().classes;
    return {{{kInputs, mix_inputs(inputs, mix)},
             {kTargets, mix_targets(targets, mix, classes, options_.dtype, options_.pins)}}};
  }

  const LoaderOptions options_;
  const SampleReader reader_;
  const std::int64_t batches_;
  const std::int64_t start_;  // in batches from the beginning of epoch 0
  EpochOrders orders_;
  const std::shared_ptr<Team> team_;  // null if there is at most one loader thread
};

Loader::Loader(const Dataset& dataset, const LoaderOptions& options, Position start)
    : maker_(std::make_shared<BatchMaker>(dataset, options, start)),
      prefetcher_(
          maker_->count(),
          [maker = maker_](std::int64_t number, const std::stop_token& stop) { return maker->make(number, stop); },
          {.threads = options.threads,
           .depth = options.prefetch,
           .wait_limit = options.wait_limit,
           .team = maker_->team()}) {}

Loader::~Loader() = default;

std::optional<Batch> Loader::next() {
  std::optional<Batch> batch = prefetcher_.next();
  const bool is_first = !std::exchange(has_begun_, true);
  if (batch && (is_first || batch->batch == 0)) maker_->announce(*batch);
  return batch;
}

std::int64_t Loader::batches() const { return maker_->batches(); }

}  // namespace sluice::data
