#include "comm/compare.h"

#include <ATen/ATen.h>

#include "core/text.h"

namespace sluice::comm {

namespace {

std::optional<Difference> compare(int rank, int processes, const std::vector<std::int64_t>& values, const auto& sum) {
  if (values.empty()) return std::nullopt;
  const at::Tensor table = at::zeros({processes, static_cast<std::int64_t>(values.size())}, at::kLong);
  table[rank].copy_(at::tensor(values, at::kLong));
  sum(table);
  const at::Tensor differs = table.ne(table[0]);  // [process, value]
  const at::Tensor positions = differs.any(0).nonzero();
  if (positions.size(0) == 0) return std::nullopt;
  Difference difference{.position = static_cast<std::size_t>(positions[0].item<std::int64_t>()), .ranks = {}};
  for (int other = 0; other < processes; ++other) {
    if (differs[other][static_cast<std::int64_t>(difference.position)].item<bool>()) difference.ranks.push_back(other);
  }
  return difference;
}

}  // namespace

std::string Difference::describe_ranks() const { return numbered("rank", ranks); }

std::optional<Difference> find_difference(const Communicator& communicator, const std::vector<std::int64_t>& values) {
  return compare(communicator.rank(), communicator.size(), values,
                 [&](const at::Tensor& table) { communicator.all_reduce(table).wait(); });
}

std::optional<Difference> find_difference(ReplicaSync& sync, const std::vector<std::int64_t>& values) {
  return compare(sync.rank(), sync.processes(), values, [&](const at::Tensor& table) { sync.sum(table); });
}

}  // namespace sluice::comm
