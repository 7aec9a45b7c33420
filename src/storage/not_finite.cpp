#include "storage/not_finite.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "core/concat.h"
#include "core/text.h"

namespace sluice::storage {
namespace {

// All bits of the exponent are set in NaN and infinity. The fixed block size lets compilers vectorize the loop.
template <typename Bits>
bool exponents_are_finite(std::span<const std::byte> values, Bits exponent) {
  constexpr std::size_t kBlock = 1024;
  Bits block[kBlock];
  while (!values.empty()) {
    const std::size_t bytes = std::min(sizeof block, values.size());
    if (bytes < sizeof block) std::memset(block, 0, sizeof block);
    std::memcpy(block, values.data(), bytes);
    int found = 0;
    for (std::size_t i = 0; i < kBlock; ++i) found |= static_cast<int>((block[i] & exponent) == exponent);
    if (found != 0) return false;
    values = values.subspan(bytes);
  }
  return true;
}

std::int64_t count_true(const at::Tensor& mask) { return mask.sum().item<std::int64_t>(); }

}  // namespace

bool all_finite(std::span<const std::byte> values, at::ScalarType type) {
  switch (type) {
    case at::kDouble: return exponents_are_finite<std::uint64_t>(values, 0x7ff0000000000000U);
    case at::kFloat: return exponents_are_finite<std::uint32_t>(values, 0x7f800000U);
    case at::kHalf: return exponents_are_finite<std::uint16_t>(values, 0x7c00U);
    case at::kBFloat16: return exponents_are_finite<std::uint16_t>(values, 0x7f80U);
    default: return true;
  }
}

bool all_finite(const at::Tensor& tensor) {
  if (!tensor.is_floating_point()) return true;
  const at::Tensor dense = tensor.detach().cpu().contiguous();
  return all_finite({static_cast<const std::byte*>(dense.const_data_ptr()), dense.nbytes()}, dense.scalar_type());
}

std::string describe_not_finite(const at::Tensor& tensor) {
  if (all_finite(tensor)) return {};
  const std::int64_t nans = count_true(tensor.isnan()), infinities = count_true(tensor.isinf());
  const std::string of_infinities = infinities > 0 ? counted(infinities, "infinite value") : std::string();
  if (nans == 0) return of_infinities;
  return concat(nans, " NaN", infinities > 0 ? " and " : "", of_infinities);
}

std::string describe_not_finite(const TensorMap& tensors) {
  std::string first;
  std::int64_t others = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!first.empty()) {
      others += all_finite(tensor) ? 0 : 1;
    } else if (const std::string words = describe_not_finite(tensor); !words.empty()) {
      first = concat(name, " has ", words);
    }
  }
  if (others == 0) return first;
  const char* const verb = others == 1 ? " holds" : " hold";
  return concat(first, " (and ", counted(others, "more tensor"), verb, " NaN or infinite values)");
}

}  // namespace sluice::storage
