#include "comm/compare.h"

#include <ATen/ATen.h>

#include "core/text.h"

namespace sluice::comm {

std::string Difference::describe_ranks() const { return numbered("rank", ranks); }

std::optional<Difference> find_difference(const Communicator& communicator, const std::vector<std::int64_t>& values) {
  if (values.empty()) return std::nullopt;
  // A row of each process; the others add zeros to it.
  const at::Tensor table = at::zeros({communicator.size(), static_cast<std::int64_t>(values.size())}, at::kLong);
  table[communicator.rank()].copy_(at::tensor(values, at::kLong));
  communicator.all_reduce(table).wait();
  const at::Tensor differs = table.ne(table[0]);  // [process, value]
  const at::Tensor positions = differs.any(0).nonzero();
  if (positions.size(0) == 0) return std::nullopt;
  Difference difference{.position = static_cast<std::size_t>(positions[0].item<std::int64_t>()), .ranks = {}};
  for (int rank = 0; rank < communicator.size(); ++rank) {
    if (differs[rank][static_cast<std::int64_t>(difference.position)].item<bool>()) difference.ranks.push_back(rank);
  }
  return difference;
}

}  // namespace sluice::comm
