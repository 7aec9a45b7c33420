#include "train/run/feature_reuse.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <future>
#include <span>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "device/cpu_threads.h"
#include "storage/checksum.h"

namespace sluice::train {
namespace {

constexpr std::int64_t kTrialCalls = 4;  // the first call maps memory and warms up, so it does not count
constexpr std::int64_t kTrialRows = 32;
// Rows of texts in one call of the added layers. Neighbours come from one batch; with data.by_length they are about as
// long.
constexpr std::size_t kRowsAtOnce = 16;

std::span<const std::int64_t> ids_of(const pipeline::MicroBatch& samples) {
  return {samples.sample_ids.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(samples.samples())};
}

void add_to(storage::Digester& digester, const std::string& name, const at::Tensor& tensor) {
  const at::Tensor own = tensor.detach().cpu().contiguous();
  const std::string head = concat(name, " ", own.sizes(), " ", own.scalar_type(), "\n");
  digester.update(std::as_bytes(std::span(head)));
  digester.update({static_cast<const std::byte*>(own.const_data_ptr()), own.nbytes()});
}

// [k]: hash of weights and running statistics of the first k + 1 layers.
std::vector<std::string> hashes_of(const pipeline::FrozenPrefix& prefix) {
  storage::Digester digester;
  std::vector<std::string> hashes;
  for (const auto& layer : prefix.layers()) {
    const std::string name = concat("layer ", layer->name());
    digester.update(std::as_bytes(std::span(name)));
    for (const nn::Parameter* parameter : layer->parameters()) add_to(digester, parameter->name, parameter->value);
    for (const nn::Buffer* buffer : layer->buffers()) add_to(digester, buffer->name, buffer->value);
    hashes.push_back(digester.digest().xxh3_128);
  }
  return hashes;
}

std::vector<std::int64_t> with_count(std::int64_t count, const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> all{count};
  all.insert(all.end(), sizes.begin(), sizes.end());
  return all;
}

std::filesystem::path temporary_folder() {
  std::error_code failure;
  const std::filesystem::path all = std::filesystem::temp_directory_path(failure);
  if (failure) {
    throw ConfigError("TMPDIR is not a folder (", failure.message(),
                      "), and freeze.cache_dir is not set; set one of them to a folder");
  }
  return all / concat("sluice-features-", ::getuid());
}

// Tokens of a row; 0: all batches have one width.
std::int64_t widest_row(const data::DatasetInfo& info, const config::DataConfig& data) {
  const data::FieldInfo* const inputs = info.field(data::kInputs);
  const bool varies = data.pad != "max" && inputs != nullptr && inputs->sizes == std::vector<std::int64_t>{-1};
  return varies ? info.context : 0;
}

// [n, T, ...] -> [n, width, ...], cut or filled up with zeros. 0: as they are.
at::Tensor with_width(const at::Tensor& rows, std::int64_t width) {
  if (width == 0 || rows.size(1) == width) return rows;
  if (rows.size(1) > width) return rows.narrow(1, 0, width).contiguous();
  std::vector<std::int64_t> sizes = rows.sizes().vec();
  sizes[1] = width;
  at::Tensor wide = at::zeros(sizes, rows.options());
  wide.narrow(1, 0, rows.size(1)).copy_(rows);
  return wide;
}

data::FeatureCacheOptions cache_options(const config::FreezeConfig& freeze) {
  const auto disk_bytes = freeze.cache == "memory" ? 0 : static_cast<std::uint64_t>(freeze.cache_disk_bytes.bytes);
  return {.memory_bytes = static_cast<std::uint64_t>(freeze.cache_bytes.bytes),
          .disk_bytes = disk_bytes,
          .directory =
              disk_bytes > 0 && freeze.cache_dir.empty() ? temporary_folder() : std::filesystem::path(freeze.cache_dir),
          .as_bfloat16 = freeze.cache_precision == "bf16",
          .rows_in_memory = freeze.cache != "disk"};
}

// Needed because a GPU call returns before its work is done.
void wait_for(const at::Tensor& tensor) { (void)tensor.flatten().slice(0, 0, 1).cpu(); }

// Runs `work` alone, with all threads of the process. A new thread ends its OpenMP team: if the threads of all teams
// outnumber the cores, libgomp lets them sleep at once when they wait, which doubles the time of later steps.
void with_all_threads(int threads, const std::function<void()>& work) {
  std::async(std::launch::async, [&] {
    device::use_cpu_threads(threads);
    work();
  }).get();
}

std::filesystem::path nearest_existing(std::filesystem::path path) {
  path = std::filesystem::absolute(path);
  std::error_code failure;
  while (!std::filesystem::exists(path, failure) && path.has_relative_path()) path = path.parent_path();
  return path;
}

}  // namespace

void CachePayoff::add(std::int64_t rows, double made_s, double kept_s) {
  if (++calls_ == 1) return;
  rows_ += rows;
  made_s_ += made_s;
  kept_s_ += kept_s;
}

std::optional<bool> CachePayoff::pays() const {
  if (calls_ < kTrialCalls || rows_ < kTrialRows) return std::nullopt;
  return kept_s_ < made_s_;
}

std::string CachePayoff::in_words() const {
  const double rows = static_cast<double>(std::max<std::int64_t>(rows_, 1)) / 1e3;
  return concat("the frozen layers take ", fixed(made_s_ / rows, 3), " ms a sample, storing and loading their outputs ",
                fixed(kept_s_ / rows, 3), " ms");
}

FeatureReuse::FeatureReuse(const Setup& setup)
    : choice_(setup.config.freeze.cache),
      threads_(std::max(1, static_cast<int>(own_cores(setup.process)))),
      cache_(std::make_shared<data::FeatureCache>(cache_options(setup.config.freeze))),
      train_(*setup.train_set, train_loader_options(setup).reading()),
      test_(*setup.test_set, eval_loader_options(setup).reading()),
      extends_(!setup.config.train.is_reproducible_by_layout()),
      input_names_(setup.task->inputs()),
      widest_(widest_row(setup.train_set->info(), setup.config.data)) {}

pipeline::FeatureSource::Found FeatureReuse::find(const pipeline::MicroBatch& samples) {
  Found found;
  std::vector<bool> is_there(static_cast<std::size_t>(samples.samples()));
  {
    const std::shared_lock lock(mutex_);
    if (has_rows()) {
      found.rows = {at::empty(with_count(samples.samples(), rows_->sizes), rows_->type)};
      is_there = cache_->fetch(data::keys_of(ids_of(samples), samples.view), found.rows.front());
      if (widest_ > 0) found.rows.front() = with_width(found.rows.front(), samples.inputs.front().size(1));
      for (const int source : rows_->inputs) found.rows.push_back(samples.inputs[source]);
    }
  }
  for (std::size_t i = 0; i < is_there.size(); ++i) {
    if (!is_there[i]) found.missing.push_back(static_cast<std::int64_t>(i));
  }
  const auto misses = std::ssize(found.missing);
  misses_ += misses;
  hits_ += samples.samples() - misses;
  if (misses == samples.samples()) found.rows.clear();
  if (misses > 0) found.inputs = inputs_of(samples, found.missing);
  return found;
}

nn::Tensors FeatureReuse::inputs_of(const pipeline::MicroBatch& samples,
                                    const std::vector<std::int64_t>& missing) const {
  nn::Tensors inputs = samples.inputs;
  if (std::ssize(missing) < samples.samples()) {
    for (at::Tensor& input : inputs) {
      if (input.defined()) input = input.index_select(0, at::tensor(missing));
    }
  }
  std::vector<std::int64_t> rows, ids;
  for (std::size_t m = 0; m < missing.size(); ++m) {
    if (samples.without_inputs.empty() || !samples.without_inputs[missing[m]]) continue;
    rows.push_back(static_cast<std::int64_t>(m));
    ids.push_back(ids_of(samples)[missing[m]]);
  }
  if (ids.empty() || widest_ > 0) return inputs;  // texts of different lengths are always read
  at::Tensor& first = inputs.front();
  if (first.is_same(samples.inputs.front())) first = first.clone();
  first.index_copy_(0, at::tensor(rows), reader_of(samples.view).read(ids, samples.view).at(data::kInputs));
  return inputs;
}

nn::Tensors FeatureReuse::complete(const pipeline::MicroBatch& samples, const Found& found, const Features& made) {
  if (samples.view_repeats) {
    std::vector<std::int64_t> made_of;
    for (const std::int64_t i : found.missing) made_of.push_back(ids_of(samples)[i]);
    keep(data::keys_of(made_of, samples.view), made, to_s(now_ns() - found.since));
  }
  if (found.rows.empty()) return made.tensors;
  nn::Tensors all = found.rows;
  const c10::Device device = made.tensors.front().device();
  const at::Tensor missing = at::tensor(found.missing).to(device);
  all.front() = all.front().to(device).index_copy_(0, missing, made.tensors.front());
  return all;
}

void FeatureReuse::keep(const std::vector<data::FeatureKey>& keys, const Features& made, double made_s) {
  learn_rows(made);
  {
    const std::shared_lock lock(mutex_);
    if (!has_rows()) return;
    if (keeping_ == Keeping::kOn) return cache_->store(keys, with_width(made.tensors.front(), widest_));
  }
  try_out(keys, made.tensors.front(), made_s);
}

void FeatureReuse::try_out(const std::vector<data::FeatureKey>& keys, const at::Tensor& made, double made_s) {
  const Nanoseconds begin = now_ns();
  wait_for(made);
  const Nanoseconds ready = now_ns();
  const at::Tensor on_host = with_width(made.cpu(), widest_);
  at::Tensor again = at::empty_like(on_host);
  {
    const std::shared_lock lock(mutex_);
    if (!has_rows()) return;
    cache_->store(keys, on_host);
    (void)cache_->fetch(keys, again);
  }
  wait_for(again.to(made.device()));
  const std::lock_guard lock(mutex_);
  if (keeping_ != Keeping::kTrial) return;
  payoff_.add(std::ssize(keys), made_s + to_s(ready - begin), to_s(now_ns() - ready));
  const std::optional<bool> pays = payoff_.pays();
  if (!pays) return;
  keeping_ = *pays ? Keeping::kOn : Keeping::kNothing;
  log_info("freeze.cache = \"auto\": ", payoff_.in_words(), ", so the cache is ", *pays ? "used" : "not used",
           " for these ", hashes_.size(), " layers");
  if (!*pays) cache_->clear();
}

void FeatureReuse::learn_rows(const Features& made) {
  {
    const std::shared_lock lock(mutex_);
    if (!waits_for_rows()) return;
  }
  const std::lock_guard lock(mutex_);
  if (!waits_for_rows()) return;
  const at::Tensor& first = made.tensors.front();
  Rows rows{first.sizes().slice(1).vec(), first.scalar_type(), {made.sources.begin() + 1, made.sources.end()}};
  if (widest_ > 0) rows.sizes.front() = widest_;
  if (std::ranges::find(rows.inputs, pipeline::FrozenPrefix::kMade) != rows.inputs.end()) {
    log_info("freeze.cache: the frozen layers hand on several tensors of their own, so nothing is cached");
    keeping_ = Keeping::kNothing;
    return;
  }
  cache_->use(hashes_.back(), rows.sizes, rows.type);
  rows_ = std::move(rows);
}

void FeatureReuse::forget() {
  const std::lock_guard lock(mutex_);
  cache_->clear();
  rows_.reset();
  payoff_ = {};
  keeping_ = choice_ == "auto" ? Keeping::kTrial : Keeping::kOn;
}

void FeatureReuse::follow(const pipeline::FrozenPrefix* prefix) {
  std::vector<std::string> before = prefix == nullptr ? std::vector<std::string>() : hashes_of(*prefix);
  before.swap(hashes_);
  if (before == hashes_) return;
  const std::size_t from = before.size();
  const bool grows = from > 0 && from < hashes_.size() && hashes_[from - 1] == before.back();
  if (grows && has_rows() && extends_) return advance(*prefix, static_cast<int>(from));
  forget();
}

FeatureReuse::Features FeatureReuse::run_added_layers(const pipeline::FrozenPrefix& prefix, int from,
                                                      const at::Tensor& rows,
                                                      std::span<const data::FeatureKey> keys) const {
  const c10::Device device = prefix.parameters().values().device();
  nn::Tensors inputs{rows.to(device)};
  if (needs_samples()) {
    std::vector<std::int64_t> ids;
    for (const data::FeatureKey& key : keys) ids.push_back(key.sample);
    const data::Samples samples = reader_of(keys.front().view).read(ids, keys.front().view);
    if (widest_ > 0) inputs.front() = with_width(inputs.front(), samples.at(data::kInputs).size(1));
    for (const int source : rows_->inputs) {
      const auto found = samples.fields.find(input_names_.at(source));
      inputs.push_back(found == samples.fields.end() ? at::Tensor() : found->second.to(device));
    }
  }
  Features made = prefix.forward(inputs, nullptr, from);
  made.tensors.front() = with_width(made.tensors.front(), widest_);
  return made;
}

std::optional<FeatureReuse::Rows> FeatureReuse::extended_rows(const Features& one) const {
  const at::Tensor& row = one.tensors.front();
  Rows next{row.sizes().slice(1).vec(), row.scalar_type()};
  for (std::size_t i = 1; i < one.sources.size(); ++i) {
    if (one.sources[i] == pipeline::FrozenPrefix::kMade) return std::nullopt;
    next.inputs.push_back(rows_->inputs.at(one.sources[i] - 1));
  }
  return next;
}

void FeatureReuse::advance(const pipeline::FrozenPrefix& prefix, int from) {
  const auto grow = [&](const at::Tensor& rows, std::span<const data::FeatureKey> keys) {
    if (!needs_samples()) return run_added_layers(prefix, from, rows, keys).tensors.front();
    nn::Tensors parts;
    for (std::size_t begin = 0, end = 0; begin < keys.size(); begin = end) {
      while (end < std::min(begin + kRowsAtOnce, keys.size()) && keys[end].view == keys[begin].view) ++end;
      const at::Tensor part = rows.slice(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
      parts.push_back(run_added_layers(prefix, from, part, keys.subspan(begin, end - begin)).tensors.front());
    }
    return at::cat(parts);
  };
  try {
    with_all_threads(threads_, [&] {
      const data::FeatureKey any{0, data::kTestView};  // for the sizes of a row
      const at::Tensor row = at::zeros(with_count(1, rows_->sizes), rows_->type);
      std::optional<Rows> next = extended_rows(run_added_layers(prefix, from, row, {&any, 1}));
      if (!next) return forget();
      cache_->advance(hashes_.back(), next->sizes, next->type, grow);
      rows_ = std::move(next);
    });
  } catch (const std::exception& error) {
    log_warning("the cache of features cannot be extended to the newly frozen layers and starts empty: ", error.what());
    forget();
  }
}

nlohmann::ordered_json FeatureReuse::fields() const {
  const data::FeatureCache::Statistics now = cache_->statistics();
  return {{"hits", hits_.load()},
          {"misses", misses_.load()},
          {"rows_in_memory", now.rows_in_memory},
          {"rows_on_disk", now.rows_on_disk},
          {"memory_bytes", now.memory_bytes},
          {"disk_bytes", now.disk_bytes}};
}

void check_feature_reuse(const Setup& setup) {
  if (!keeps_features(setup.config)) return;
  if (setup.config.train.is_reproducible_by_layout() && setup.train_set->info().kind == SampleKind::kTokens) {
    throw ConfigError(
        "freeze.cache cannot be combined with train.reproducible for texts: their features depend on the length that "
        "their batch is padded to; choose freeze.cache = \"off\"");
  }
  const data::FeatureCacheOptions options = cache_options(setup.config.freeze);
  if (options.disk_bytes == 0) return;
  const std::filesystem::path there = nearest_existing(options.directory);
  if (std::filesystem::is_directory(there) && ::access(there.c_str(), W_OK | X_OK) == 0) return;
  throw ConfigError("freeze.cache_dir = ", options.directory.string(), ": ", there.string(),
                    std::filesystem::is_directory(there) ? " is not writable" : " is not a folder",
                    "; set it to a folder with room for freeze.cache_disk_bytes");
}

std::shared_ptr<FeatureReuse> make_feature_reuse(const Setup& setup) {
  return keeps_features(setup.config) ? std::make_shared<FeatureReuse>(setup) : nullptr;
}

data::LoaderOptions with_features(data::LoaderOptions options, const std::shared_ptr<FeatureReuse>& features) {
  if (features) options.features = features->cache();
  return options;
}

}  // namespace sluice::train
