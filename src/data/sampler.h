// sampler: which sample comes when, and which replica gets it. Pure functions of numbers.
// Every sample comes exactly once per epoch: the last batch may be short, none is dropped, none is repeated, and the
// order does not depend on how many replicas share the batches. Evaluation takes 0 .. size-1 in order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::data {

// The seeded permutation of 0 .. size-1 that one epoch of training goes through.
[[nodiscard]] std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t size);

// Likewise, but the shards, which begin at `begins`, come one after the other in a permutation of theirs, each from its
// beginning on; only samples of the same window, so many positions in a row, are shuffled among each other.
[[nodiscard]] std::vector<std::int64_t> shard_order(std::uint64_t seed, std::int64_t epoch, std::int64_t size,
                                                    std::span<const std::int64_t> begins, std::int64_t window);

// 0 .. size-1.
[[nodiscard]] std::vector<std::int64_t> sequential_order(std::int64_t size);

struct Slice {
  std::int64_t begin = 0;
  std::int64_t count = 0;  // may be 0
  bool operator==(const Slice&) const = default;
};

// Batches of one epoch: all of batch_size samples, the last one possibly short.
[[nodiscard]] std::int64_t batches_per_epoch(std::int64_t size, std::int64_t batch_size);
// The positions of batch number `batch` in the order of the epoch.
[[nodiscard]] Slice batch_slice(std::int64_t size, std::int64_t batch_size, std::int64_t batch);

// A batch in order over `parts` replicas: sizes differ by at most one, the larger parts first.
[[nodiscard]] std::vector<Slice> replica_slices(std::int64_t batch_samples, std::int64_t parts);

// The replicas that one process loads for: `count` of them from `first`, of `parts` over all processes.
struct Share {
  std::int64_t first = 0;
  std::int64_t count = 1;
  std::int64_t parts = 1;
};
// What these replicas have of a batch: their replica_slices, which are neighbours, as one.
[[nodiscard]] Slice share_slice(std::int64_t batch_samples, const Share& share);

// This process's samples of a batch, as many as share_slice() has, in the order of the batch, where each sample has a
// process that it goes to in every epoch, so that what is kept there of it is found again. A process has so much room
// in a batch and no more: the samples that go elsewhere are the same ones wherever possible, so that after some epochs
// both have them. The shares of all processes together are the batch, each sample once.
// Requires: all processes have as many replicas.
[[nodiscard]] std::vector<std::int64_t> samples_at_home(std::span<const std::int64_t> batch, const Share& share);

}  // namespace sluice::data
