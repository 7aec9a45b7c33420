#include "ps/compression.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <type_traits>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "optim/clip_norm.h"

namespace sluice::ps {
namespace {

using Kind = Compression::Kind;
using ElementIndex = std::uint32_t;

constexpr std::int64_t kMostIndices = std::int64_t{1} << 31;
constexpr double kLargestBf16 = 0x1.FEp127;

std::int64_t size_of(at::ScalarType dtype) { return static_cast<std::int64_t>(c10::elementSize(dtype)); }

bool is_number(at::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kDouble; }

// Returns a tensor that is aligned for numbers, because the bytes of a message may begin anywhere.
at::Tensor aligned(const at::Tensor& bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.const_data_ptr());
  return address % alignof(double) == 0 && bytes.storage_offset() % alignof(double) == 0 ? bytes : bytes.clone();
}

at::Tensor numbers_in(const at::Tensor& bytes, at::ScalarType dtype) {
  return bytes.numel() == 0 ? at::empty({0}, dtype) : aligned(bytes).view(dtype);
}

template <typename Value>
std::span<const Value> values_in(const at::Tensor& tensor) {
  // The typed const_data_ptr has another symbol in Clang, which builds the fuzzers, than in LibTorch.
  return {static_cast<const Value*>(tensor.const_data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

template <typename Visit>
auto with_type(at::ScalarType dtype, const Visit& visit) {
  return dtype == at::kDouble ? visit(double{}) : visit(float{});
}

template <typename Value>
using BitsOf = std::conditional_t<sizeof(Value) == 4, std::uint32_t, std::uint64_t>;

// Bits that sort like magnitudes: infinity is above all numbers, and NaN above infinity.
template <typename Value>
BitsOf<Value> magnitude(Value value) {
  return std::bit_cast<BitsOf<Value>>(value) & (std::numeric_limits<BitsOf<Value>>::max() >> 1U);
}

template <typename Value>
struct Threshold {
  BitsOf<Value> least = 0;  // smallest magnitude that is kept
  std::int64_t of_it = 0;   // how many elements of exactly that magnitude are kept
};

// Finds the kept-th largest magnitude by radix select. Requires 1 <= kept <= values.
template <typename Value>
Threshold<Value> threshold_of(std::span<const Value> values, std::int64_t kept) {
  constexpr int kWidth = 11;  // of a digit in bits: the counts fit the L1 cache
  constexpr BitsOf<Value> kDigit = (1U << kWidth) - 1;
  Threshold<Value> found{.of_it = kept};
  BitsOf<Value> known = 0;  // mask of the bits of `least` that are known
  for (int left = std::numeric_limits<BitsOf<Value>>::digits; left > 0; left -= kWidth) {
    const int shift = std::max(left - kWidth, 0);
    std::array<ElementIndex, kDigit + 1> counts{};
    for (const Value value : values) {
      const BitsOf<Value> bits = magnitude(value);
      if ((bits & known) == found.least) ++counts[(bits >> shift) & kDigit];
    }
    BitsOf<Value> digit = kDigit;
    for (; counts[digit] < found.of_it; --digit) found.of_it -= counts[digit];
    found.least |= digit << shift;
    known |= kDigit << shift;
  }
  return found;
}

template <typename Value>
at::Tensor pack_largest(const at::Tensor& from, std::int64_t kept) {
  const std::span<const Value> values = values_in<Value>(from);
  at::Tensor bytes = at::empty({kept * static_cast<std::int64_t>(sizeof(Value) + sizeof(ElementIndex))}, at::kByte);
  if (kept == 0) return bytes;
  auto* value = static_cast<Value*>(bytes.mutable_data_ptr());
  auto* next_index = reinterpret_cast<ElementIndex*>(value + kept);
  auto [least, of_it] = threshold_of(values, kept);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const BitsOf<Value> bits = magnitude(values[i]);
    if (bits < least || (bits == least && of_it-- <= 0)) continue;
    *value++ = values[i];
    *next_index++ = static_cast<ElementIndex>(i);
  }
  return bytes;
}

template <typename Value>
struct Kept {
  explicit Kept(const at::Tensor& bytes)
      : owner(aligned(bytes)), count(static_cast<std::size_t>(bytes.numel()) / (sizeof(Value) + sizeof(ElementIndex))) {
    const auto* const first = static_cast<const Value*>(owner.const_data_ptr());
    values = {first, count};
    indices = {reinterpret_cast<const ElementIndex*>(first + count), count};
  }

  at::Tensor owner;
  std::size_t count;
  std::span<const Value> values;
  std::span<const ElementIndex> indices;
};

template <typename Value>
bool are_indices(const at::Tensor& bytes, std::int64_t elements) {
  const Kept<Value> kept(bytes);
  return std::ranges::adjacent_find(kept.indices, std::greater_equal<>{}) == kept.indices.end() &&
         (kept.count == 0 || kept.indices.back() < elements);
}

template <typename Value>
void add_largest(const at::Tensor& bytes, const at::Tensor& to, double scale) {
  const Kept<Value> kept(bytes);
  auto* const sums = to.mutable_data_ptr<Value>();
  for (std::size_t i = 0; i < kept.count; ++i) sums[kept.indices[i]] += static_cast<Value>(scale) * kept.values[i];
}

at::Tensor pack_rounded(const at::Tensor& values) {
  at::Tensor rounded = values.to(at::kBFloat16);
  if (!optim::is_finite(rounded)) {
    const at::Tensor held = values.clamp(-kLargestBf16, kLargestBf16);
    rounded = at::where(values.isfinite(), held, values).to(at::kBFloat16);
  }
  return rounded.view(at::kByte);
}

at::Tensor unpacked(const Compression& compression, at::ScalarType dtype, std::int64_t elements,
                    const at::Tensor& bytes) {
  switch (compression.kind) {
    case Kind::kNone: return numbers_in(bytes, dtype);
    case Kind::kBf16: return numbers_in(bytes, at::kBFloat16).to(dtype);
    case Kind::kTopK: break;
  }
  at::Tensor values = at::zeros({elements}, dtype);
  with_type(dtype, [&](auto type) { add_largest<decltype(type)>(bytes, values, 1); });
  return values;
}

}  // namespace

Compression::Kind compression_named(std::string_view name) {
  constexpr std::array kKinds{Kind::kNone, Kind::kBf16, Kind::kTopK};  // in the order of compression_names()
  const auto found = std::ranges::find(compression_names(), name);
  if (found == compression_names().end())
    throw ConfigError(concat("compression \"", name, "\" is unknown; give one of ", join(compression_names(), ", ")));
  return kKinds.at(static_cast<std::size_t>(found - compression_names().begin()));
}

const std::vector<std::string>& compression_names() {
  static const std::vector<std::string> names{"none", "bf16", "topk"};
  return names;
}

void check_compression(const Compression& compression, const Layout& layout) {
  if (!compression.loses()) return;
  if (!is_number(layout.dtype))
    throw ConfigError("tensors of ", c10::toString(layout.dtype),
                      " cannot be compressed; leave out ps.push_compression and ps.pull_compression");
  if (compression.kind != Kind::kTopK) return;
  if (!(compression.ratio > 0 && compression.ratio <= 1))
    throw ConfigError("ps.topk_ratio=", compression.ratio, " is out of range; it must be > 0 and <= 1");
  for (const Shard& shard : layout.shards) {
    if (shard.elements > kMostIndices)
      throw ConfigError("a shard of ", shard.elements, " elements is too large for \"topk\", which allows ",
                        kMostIndices, "; raise ps.shards");
  }
}

std::int64_t kept_of(double ratio, std::int64_t elements) {
  constexpr double kNoise = 1e-6;  // larger than the rounding error of 2^31 elements
  const double kept = std::ceil(ratio * static_cast<double>(elements) - kNoise);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(kept), std::min<std::int64_t>(elements, 1), elements);
}

std::int64_t packed_bytes(const Compression& compression, at::ScalarType dtype, std::int64_t elements) {
  switch (compression.kind) {
    case Kind::kNone: return elements * size_of(dtype);
    case Kind::kBf16: return elements * size_of(at::kBFloat16);
    case Kind::kTopK: break;
  }
  return kept_of(compression.ratio, elements) * (size_of(dtype) + size_of(at::kInt));
}

std::int64_t Packed::bytes() const {
  return std::accumulate(shards.begin(), shards.end(), static_cast<std::int64_t>(statistics.nbytes()),
                         [](std::int64_t sum, const at::Tensor& shard) { return sum + shard.numel(); });
}

at::Tensor pack(const Compression& compression, const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  if (values.numel() == 0) return at::empty({0}, at::kByte);
  switch (compression.kind) {
    case Kind::kNone: return values.view(at::kByte);
    case Kind::kBf16: return pack_rounded(values);
    case Kind::kTopK: break;
  }
  const std::int64_t kept = kept_of(compression.ratio, values.numel());
  return with_type(values.scalar_type(), [&](auto type) { return pack_largest<decltype(type)>(values, kept); });
}

bool is_packed(const Compression& compression, at::ScalarType dtype, std::int64_t elements, const at::Tensor& bytes) {
  if (compression.loses() && !is_number(dtype)) return false;
  const bool is_top = compression.kind == Kind::kTopK;
  if (elements < 0 || (is_top && elements > kMostIndices)) return false;
  if (bytes.numel() != packed_bytes(compression, dtype, elements)) return false;
  return !is_top || with_type(dtype, [&](auto type) { return are_indices<decltype(type)>(bytes, elements); });
}

void add_packed(const Compression& compression, const at::Tensor& bytes, const at::Tensor& to, double scale) {
  const at::NoGradGuard no_grad;
  switch (compression.kind) {
    case Kind::kNone: to.add_(numbers_in(bytes, to.scalar_type()), scale); return;
    case Kind::kBf16: to.add_(numbers_in(bytes, at::kBFloat16), scale); return;
    case Kind::kTopK: break;
  }
  with_type(to.scalar_type(), [&](auto type) { add_largest<decltype(type)>(bytes, to, scale); });
}

std::optional<at::Tensor> unpack(const Compression& compression, at::ScalarType dtype, std::int64_t elements,
                                 const at::Tensor& bytes) {
  if (!is_packed(compression, dtype, elements, bytes)) return std::nullopt;
  return unpacked(compression, dtype, elements, bytes);
}

bool is_packed(const Compression& compression, const TensorsShape& shape, const Packed& packed) {
  bool fits = packed.shards.size() == shape.shards.size() && packed.statistics.numel() == shape.statistics &&
              packed.statistics.scalar_type() == shape.dtype;
  for (std::size_t s = 0; fits && s < shape.shards.size(); ++s)
    fits = is_packed(compression, shape.dtype, shape.shards[s], packed.shards[s]);
  return fits;
}

std::optional<Tensors> unpack(const Compression& compression, const TensorsShape& shape, const Packed& packed) {
  if (!is_packed(compression, shape, packed)) return std::nullopt;
  Tensors tensors{.statistics = packed.statistics};
  for (std::size_t s = 0; s < shape.shards.size(); ++s)
    tensors.shards.push_back(unpacked(compression, shape.dtype, shape.shards[s], packed.shards[s]));
  return tensors;
}

}  // namespace sluice::ps
