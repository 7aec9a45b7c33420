// sampler: the order of samples and their distribution over replicas. Pure functions. Every sample comes exactly once
// per epoch: the last batch may be short. The order does not depend on the number of replicas.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/parts.h"

namespace sluice::data {

[[nodiscard]] std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t size);

// Reads shard after shard (`begins`: their first samples) in a random order; samples are shuffled only within windows
// of `window` consecutive positions.
[[nodiscard]] std::vector<std::int64_t> shard_order(std::uint64_t seed, std::int64_t epoch, std::int64_t size,
                                                    std::span<const std::int64_t> begins, std::int64_t window);

// epoch_order(), in which each window of kLengthWindow batches is sorted by length, longest first, so that batches need
// little padding. lengths: of each sample.
inline constexpr std::int64_t kLengthWindow = 50;
[[nodiscard]] std::vector<std::int64_t> length_order(std::uint64_t seed, std::int64_t epoch,
                                                     std::span<const int> lengths, std::int64_t batch_size);

[[nodiscard]] std::vector<std::int64_t> sequential_order(std::int64_t size);

struct Slice {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  bool operator==(const Slice&) const = default;
};

[[nodiscard]] std::int64_t batches_per_epoch(std::int64_t size, std::int64_t batch_size);
[[nodiscard]] Slice batch_slice(std::int64_t size, std::int64_t batch_size, std::int64_t batch);

// The replicas of one process: `count` of those of all processes, beginning with `first`. A batch is split in order
// over all replicas, in units of `unit` samples.
struct Share {
  std::int64_t first = 0;
  std::int64_t count = 1;
  Parts parts = 1;
  std::int64_t unit = 1;
};
[[nodiscard]] Slice share_slice(std::int64_t batch_samples, const Share& share);

// This process's samples of a batch, as many as share_slice() has, in the order of the batch. Each sample has a home
// process, so that data kept there is found again. Samples beyond a home's share go elsewhere, the same ones each time
// if possible. Requires: all processes have the same number of replicas.
[[nodiscard]] std::vector<std::int64_t> samples_at_home(std::span<const std::int64_t> batch, const Share& share);

}  // namespace sluice::data
