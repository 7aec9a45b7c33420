#include "data/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/divided_up.h"
#include "core/parts.h"
#include "core/rng.h"
#include "data/feature_key.h"

namespace sluice::data {

std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t size) {
  auto order = sequential_order(size);
  RngStream rng(derive_key(derive_key(seed, hash_name("shuffle")), static_cast<std::uint64_t>(epoch)));
  shuffle(order, rng);
  return order;
}

std::vector<std::int64_t> shard_order(std::uint64_t seed, std::int64_t epoch, std::int64_t size,
                                      std::span<const std::int64_t> begins, std::int64_t window) {
  check(!begins.empty() && begins.front() == 0 && window > 0, "shards that begin with sample 0, and a positive window");
  std::vector<std::int64_t> order;
  for (const std::int64_t shard : epoch_order(derive_key(seed, hash_name("shards")), epoch, std::ssize(begins))) {
    const bool is_last = shard + 1 == std::ssize(begins);
    const std::int64_t end = is_last ? size : begins[static_cast<std::size_t>(shard + 1)];
    for (std::int64_t i = begins[static_cast<std::size_t>(shard)]; i < end; ++i) order.push_back(i);
  }
  const std::uint64_t key = derive_key(derive_key(seed, hash_name("windows")), static_cast<std::uint64_t>(epoch));
  for (std::int64_t begin = 0; begin < size; begin += window) {
    const std::int64_t length = std::min(window, size - begin);
    const std::vector<std::int64_t> from(order.begin() + begin, order.begin() + begin + length);
    const std::vector<std::int64_t> shuffled = epoch_order(key, begin / window, length);
    for (std::int64_t i = 0; i < length; ++i) order[begin + i] = from[shuffled[i]];
  }
  return order;
}

std::vector<std::int64_t> length_order(std::uint64_t seed, std::int64_t epoch, std::span<const int> lengths,
                                       std::int64_t batch_size) {
  check(batch_size > 0, "a positive batch size");
  std::vector<std::int64_t> order = epoch_order(seed, epoch, std::ssize(lengths));
  const auto length_of = [&](std::int64_t sample) { return lengths[static_cast<std::size_t>(sample)]; };
  for (auto begin = order.begin(); begin != order.end();) {
    const auto end = begin + std::min<std::ptrdiff_t>(kLengthWindow * batch_size, order.end() - begin);
    std::stable_sort(begin, end, [&](std::int64_t a, std::int64_t b) { return length_of(a) > length_of(b); });
    begin = end;
  }
  return order;
}

std::vector<std::int64_t> sequential_order(std::int64_t size) {
  check(size >= 0, "at least 0 samples");
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return order;
}

std::int64_t batches_per_epoch(std::int64_t size, std::int64_t batch_size) {
  check(size >= 0 && batch_size > 0, "at least 0 samples and a positive batch size");
  return divided_up(size, batch_size);
}

Slice batch_slice(std::int64_t size, std::int64_t batch_size, std::int64_t batch) {
  check(batch >= 0 && batch < batches_per_epoch(size, batch_size), "a batch number within the epoch");
  const std::int64_t begin = batch * batch_size;
  return {begin, std::min(batch_size, size - begin)};
}

Slice share_slice(std::int64_t batch_samples, const Share& share) {
  check(share.first >= 0 && share.count >= 0 && share.first + share.count <= share.parts.number(),
        "a share within the replicas");
  const auto begin_of = [&](std::int64_t part) {
    const std::int64_t units = divided_up(batch_samples, share.unit);
    return std::min(share.parts.begin(units, part) * share.unit, batch_samples);
  };
  return {begin_of(share.first), begin_of(share.first + share.count) - begin_of(share.first)};
}

std::vector<std::int64_t> samples_at_home(std::span<const std::int64_t> batch, const Share& share) {
  const std::int64_t replicas = share.parts.number();
  check(share.count > 0 && replicas % share.count == 0 && share.first % share.count == 0,
        "equally many replicas in all processes");
  const auto size = static_cast<std::int64_t>(batch.size());
  const auto processes = static_cast<std::uint64_t>(replicas / share.count);
  const auto own = static_cast<std::uint64_t>(share.first / share.count);
  std::vector<std::int64_t> room;
  for (std::int64_t first = 0; first < replicas; first += share.count)
    room.push_back(share_slice(size, {first, share.count, share.parts, share.unit}).count);

  std::vector<std::pair<std::uint64_t, std::size_t>> by_priority;  // lowest priority value first
  for (std::size_t i = 0; i < batch.size(); ++i)
    by_priority.emplace_back(splitmix64(static_cast<std::uint64_t>(batch[i]) + 1), i);
  std::ranges::sort(by_priority);
  std::vector<std::size_t> mine;
  for (const auto& [priority, i] : by_priority) {
    std::uint64_t process = splitmix64(priority) % processes;
    while (room[process] == 0) process = (process + 1) % processes;
    --room[process];
    if (process == own) mine.push_back(i);
  }
  std::ranges::sort(mine);
  std::vector<std::int64_t> samples;
  for (const std::size_t i : mine) samples.push_back(batch[i]);
  return samples;
}

}  // namespace sluice::data
