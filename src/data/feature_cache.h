// feature_cache: outputs of a frozen prefix of layers, a row per (sample, view), so that they are computed once and not
// every epoch. One for all replicas of the process. Memory first, then disk (feature_store.h says how the budgets are
// shared); nothing is evicted: what came first is kept until the budgets are full, the rest is a miss each time.
// Not here: when to cache, what the prefix is and how its layers run (the engine's), the order of samples (sampler.h).
// Content: a hit is bit for bit what was stored, or with as_bfloat16 its rounding to nearest even, in the type of
// use(). Threads: any. use() and advance() wait for calls under way, and all but statistics() wait for them. Errors:
// none of the disk's is thrown: a disk that is full or broken is given up with one warning, its rows dropped and its
// space given back; the memory goes on. A row whose bytes on disk are not what was written is a miss. After the process
// ends, however it does, no file is left (unnamed_file.h).
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
  std::uint64_t disk_bytes = 0;     // 0: nothing is kept on disk
  std::filesystem::path directory;  // for the file; made where it is not there
  bool as_bfloat16 = false;         // float and double rows take two bytes a number
  bool rows_in_memory = true;       // false: rows on disk only; memory_bytes then hold the index and what is read ahead
};

class FeatureCache {
 public:
  using Statistics = FeatureStatistics;

  // Removes from the directory what dead processes may have left there.
  explicit FeatureCache(const FeatureCacheOptions& options);

  // The rows from now on. prefix: a hash of the frozen layers' weights and running statistics and how many they are.
  // Rows of another prefix, or of other sizes or type, are stale and dropped. Comes before the first
  // fetch(), store() and advance().
  void use(const std::string& prefix, at::IntArrayRef row_sizes, at::ScalarType type);

  // Drops all rows, and what they are of: use() comes next.
  void clear();

  // Which of these keys have a row now. None before the first use().
  [[nodiscard]] std::vector<bool> has(std::span<const FeatureKey> keys) const;

  // Rows of these keys into `rows` [n, row...], of any layout and device; [i] is true where it was there, other rows
  // are untouched.
  std::vector<bool> fetch(std::span<const FeatureKey> keys, at::Tensor& rows);

  // Keeps rows [n, row...], from any device, as far as the budgets go. Those there already stay: the caller's are
  // equal.
  void store(std::span<const FeatureKey> keys, const at::Tensor& rows);

  // Whether read_ahead() is of any use.
  [[nodiscard]] bool reads_ahead() const { return !store_.statistics().disk_is_off; }
  // The next keys that will be fetched, in order: those on disk now are read ahead by a thread, as far as its buffer
  // goes. Takes the place of the list before. Nothing before the first use().
  void read_ahead(const std::vector<FeatureKey>& keys);

  // `rows` [m, old row...] on the CPU, of the type so far -> [m, new row...], on any device, of the new type.
  using Forward = std::function<at::Tensor(const at::Tensor& rows)>;
  // The prefix has grown: every row becomes what `forward` makes of it, a piece of at most 256 at a time, within the
  // budgets all the time. Of larger rows some may find no room and are dropped. With as_bfloat16 every advance rounds
  // once more. What forward throws is passed on, and the cache is then empty, of the new prefix.
  // `forward` may call no other method than statistics().
  void advance(const std::string& prefix, at::IntArrayRef row_sizes, at::ScalarType type, const Forward& forward);

  [[nodiscard]] Statistics statistics() const { return store_.statistics(); }

 private:
  struct Format {
    std::string prefix;
    std::vector<std::int64_t> sizes;
    at::ScalarType type = at::kFloat;
    at::ScalarType kept = at::kFloat;  // the type in memory and on disk
    [[nodiscard]] std::uint64_t row_bytes() const;
    [[nodiscard]] std::vector<std::int64_t> sizes_of(std::int64_t rows) const;
    friend bool operator==(const Format&, const Format&) = default;
  };
  // Many readers or one writer. A writer that waits goes before readers that come later.
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
  mutable Gate gate_;  // alone: format_ changes
  Format format_;
  FeatureStore store_;
};

}  // namespace sluice::data
