#include "data/feature_cache.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "core/check.h"
#include "core/concat.h"

namespace sluice::data {
namespace {

at::Tensor as_kept(const at::Tensor& rows, at::ScalarType kept) { return rows.to(at::kCPU, kept).contiguous(); }

std::byte* bytes_of(const at::Tensor& rows) { return static_cast<std::byte*>(rows.data_ptr()); }

}  // namespace

std::shared_lock<std::shared_mutex> FeatureCache::Gate::shared() {
  const std::lock_guard turn(turn_);
  return std::shared_lock(gate_);
}

std::unique_lock<std::shared_mutex> FeatureCache::Gate::alone() {
  const std::lock_guard turn(turn_);
  return std::unique_lock(gate_);
}

std::uint64_t FeatureCache::Format::row_bytes() const {
  return static_cast<std::uint64_t>(c10::multiply_integers(sizes)) * c10::elementSize(kept);
}

std::vector<std::int64_t> FeatureCache::Format::sizes_of(std::int64_t rows) const {
  std::vector<std::int64_t> all{rows};
  all.insert(all.end(), sizes.begin(), sizes.end());
  return all;
}

FeatureCache::FeatureCache(const FeatureCacheOptions& options)
    : as_bfloat16_(options.as_bfloat16),
      store_({options.memory_bytes, options.disk_bytes, options.directory, options.rows_in_memory}) {}

FeatureCache::Format FeatureCache::format_of(const std::string& prefix, at::IntArrayRef row_sizes,
                                             at::ScalarType type) const {
  const bool is_rounded = as_bfloat16_ && (type == at::kFloat || type == at::kDouble);
  return {prefix, row_sizes.vec(), type, is_rounded ? at::kBFloat16 : type};
}

void FeatureCache::use(const std::string& prefix, at::IntArrayRef row_sizes, at::ScalarType type) {
  const auto lock = gate_.alone();
  Format format = format_of(prefix, row_sizes, type);
  if (format == format_) return;
  store_.reset(format.row_bytes());
  format_ = std::move(format);
}

void FeatureCache::clear() {
  const auto lock = gate_.alone();
  if (format_.prefix.empty()) return;
  store_.reset(format_.row_bytes());
  format_ = {};
}

void FeatureCache::check_rows(std::size_t keys, const at::Tensor& rows) const {
  const auto expected = format_.sizes_of(static_cast<std::int64_t>(keys));
  check(rows.scalar_type() == format_.type && rows.sizes() == expected,
        concat("rows ", at::IntArrayRef(expected), " of ", format_.type, ", not ", rows.sizes(), " of ",
               rows.scalar_type()));
}

std::vector<bool> FeatureCache::has(std::span<const FeatureKey> keys) const {
  const auto lock = gate_.shared();
  return store_.has(keys);
}

std::vector<bool> FeatureCache::fetch(std::span<const FeatureKey> keys, at::Tensor& rows) {
  const auto lock = gate_.shared();
  check_rows(keys.size(), rows);
  const at::NoGradGuard no_grad;
  if (rows.is_cpu() && rows.is_contiguous() && format_.kept == format_.type) return store_.fetch(keys, bytes_of(rows));
  const at::Tensor kept = at::empty(rows.sizes(), format_.kept);
  std::vector<bool> is_there = store_.fetch(keys, bytes_of(kept));
  std::vector<std::int64_t> found;
  for (std::size_t i = 0; i < is_there.size(); ++i) {
    if (is_there[i]) found.push_back(static_cast<std::int64_t>(i));
  }
  if (found.empty()) return is_there;
  const at::Tensor which = at::tensor(found);
  const at::Tensor hits = found.size() == keys.size() ? kept : kept.index_select(0, which);
  rows.index_copy_(0, which.to(rows.device()), hits.to(rows.device(), format_.type));
  return is_there;
}

void FeatureCache::store(std::span<const FeatureKey> keys, const at::Tensor& rows) {
  const auto lock = gate_.shared();
  check_rows(keys.size(), rows);
  const at::NoGradGuard no_grad;
  const std::vector<std::int64_t> wanted = store_.wanted(keys);
  if (wanted.empty()) return;
  if (wanted.size() == keys.size()) return store_.keep(keys, bytes_of(as_kept(rows, format_.kept)));
  std::vector<FeatureKey> chosen;
  for (const std::int64_t i : wanted) chosen.push_back(keys[i]);
  store_.keep(chosen, bytes_of(as_kept(rows.index_select(0, at::tensor(wanted).to(rows.device())), format_.kept)));
}

void FeatureCache::read_ahead(const std::vector<FeatureKey>& keys) {
  const auto lock = gate_.shared();
  if (!format_.prefix.empty()) store_.read_ahead(keys);
}

void FeatureCache::advance(const std::string& prefix, at::IntArrayRef row_sizes, at::ScalarType type,
                           const Forward& forward) {
  const auto lock = gate_.alone();
  const Format old = std::exchange(format_, format_of(prefix, row_sizes, type));
  if (old == format_) return;
  at::Tensor changed;
  store_.change(format_.row_bytes(), [&](std::byte* rows, std::span<const FeatureKey> keys) -> const std::byte* {
    const at::NoGradGuard no_grad;
    const std::int64_t count = std::ssize(keys);
    // A copy, because forward may keep its input or return a view of it.
    const at::Tensor before = at::from_blob(rows, old.sizes_of(count), old.kept).to(old.type, false, true);
    const at::Tensor after = forward(before, keys);
    check_rows(keys.size(), after);
    changed = as_kept(after, format_.kept);
    return bytes_of(changed);
  });
}

}  // namespace sluice::data
