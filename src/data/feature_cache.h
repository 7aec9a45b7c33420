// feature_cache: stores outputs of the frozen prefix of layers, one row per (sample, view), for all replicas of the
// process. Nothing is evicted; with full budgets (feature_store.h), further rows are misses. A hit is bit-equal to the
// stored row, or with as_bfloat16 to the row rounded to nearest even.
// Threads: any. use() and advance() wait for running calls, and other calls except statistics() wait for them. Errors:
// disk errors are not thrown. A full or broken disk is logged once, its rows are dropped and its space is freed. A row
// whose bytes on disk have changed is a miss.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "data/feature_key.h"
#include "data/feature_store.h"

namespace sluice::data {

struct FeatureCacheOptions {
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;     // 0: no rows on disk
  std::filesystem::path directory;  // folder of the file; created if missing
  bool as_bfloat16 = false;         // float and double rows take two bytes per number
  bool rows_in_memory = true;       // false: rows on disk only; memory_bytes then limits index and read-ahead buffer
};

class FeatureCache {
 public:
  using Statistics = FeatureStatistics;

  explicit FeatureCache(const FeatureCacheOptions& options);

  // prefix: hash of the number of frozen layers, their weights and running statistics. Drops all rows if prefix, sizes
  // or type change. Required before the first fetch(), store() and advance().
  void use(const std::string& prefix, at::IntArrayRef row_sizes, at::ScalarType type);

  // Drops all rows and their description; call use() next.
  void clear();

  [[nodiscard]] std::vector<bool> has(std::span<const FeatureKey> keys) const;

  // Writes rows to `rows` [n, row...], of any layout and device; returns true for each row found. Others are unchanged.
  std::vector<bool> fetch(std::span<const FeatureKey> keys, at::Tensor& rows);

  // Stores rows [n, row...] from any device, as far as the budgets allow. Existing rows stay; new ones must equal them.
  void store(std::span<const FeatureKey> keys, const at::Tensor& rows);

  [[nodiscard]] bool reads_ahead() const { return !store_.statistics().disk_is_off; }
  // Replaces the list of keys that will be fetched next. A thread reads those that are on disk now, as far as its
  // buffer allows. No effect before the first use().
  void read_ahead(const std::vector<FeatureKey>& keys);

  // Maps `rows` [m, old row...] (CPU, old type) of `keys` to [m, new row...] (any device, new type).
  using Forward = std::function<at::Tensor(const at::Tensor& rows, std::span<const FeatureKey> keys)>;
  // Replaces every row by forward(row) after the prefix has grown. If rows grow, those without room are dropped. With
  // as_bfloat16, every advance rounds again. An exception of `forward` is passed on and leaves an empty cache with the
  // new prefix. `forward` may call only statistics().
  void advance(const std::string& prefix, at::IntArrayRef row_sizes, at::ScalarType type, const Forward& forward);

  [[nodiscard]] Statistics statistics() const { return store_.statistics(); }

 private:
  struct Format {
    std::string prefix;
    std::vector<std::int64_t> sizes;
    at::ScalarType type = at::kFloat;
    at::ScalarType kept = at::kFloat;
    [[nodiscard]] std::uint64_t row_bytes() const;
    [[nodiscard]] std::vector<std::int64_t> sizes_of(std::int64_t rows) const;
    friend bool operator==(const Format&, const Format&) = default;
  };
  // Many readers or one writer; a waiting writer precedes later readers.
  class Gate {
   public:
    std::shared_lock<std::shared_mutex> shared();
    std::unique_lock<std::shared_mutex> alone();

   private:
    std::mutex turn_;
    std::shared_mutex gate_;
  };

  [[nodiscard]] Format format_of(const std::string& prefix, at::IntArrayRef row_sizes, at::ScalarType type) const;
  void check_rows(std::size_t keys, const at::Tensor& rows) const;

  const bool as_bfloat16_;
  mutable Gate gate_;  // exclusive: format_ changes
  Format format_;
  FeatureStore store_;
};

}  // namespace sluice::data
