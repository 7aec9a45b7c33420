#include "graph/scalar_type.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace sluice::graph {
namespace {

struct Entry {
  int number;
  at::ScalarType type;
};
constexpr std::array kTypes{Entry{1, at::kByte},  Entry{2, at::kChar},     Entry{3, at::kShort}, Entry{4, at::kInt},
                            Entry{5, at::kLong},  Entry{6, at::kHalf},     Entry{7, at::kFloat}, Entry{8, at::kDouble},
                            Entry{12, at::kBool}, Entry{13, at::kBFloat16}};

}  // namespace

at::ScalarType scalar_type(int number, const std::string& where) {
  const auto found = std::ranges::find(kTypes, number, &Entry::number);
  if (found == kTypes.end())
    throw ConfigError(where, " has numbers of type ", number, " (ScalarType of torch.export), which is not supported");
  return found->type;
}

}  // namespace sluice::graph
