// compression: packs a shard's values into fewer bytes between server and worker, and unpacks them.
//   kNone  the values themselves
//   kBf16  16 bits each, rounded to nearest, ties to even; float64 is rounded via float32. A finite value that would
//          become infinite is clamped to the largest bf16
//   kTopK  the kept_of() largest magnitudes, the first ones among equals: their values, then their indices in the
//          shard as ascending 32-bit numbers
// The sender keeps what packing loses (push_compressor.h, pull_compressor.h). NaN and infinity count as larger than any
// number, so they are always sent. The bytes are little-endian. Received bytes are checked before use, and unpacking
// needs no more memory than the shard. Running statistics are not compressed. Threads: any. Errors: ConfigError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ps/layout.h"

namespace sluice::ps {

struct Compression {
  enum class Kind { kNone, kBf16, kTopK };
  Kind kind = Kind::kNone;
  double ratio = 0.01;  // fraction of a shard's elements that kTopK keeps: > 0 and <= 1

  [[nodiscard]] bool loses() const { return kind != Kind::kNone; }
  friend bool operator==(const Compression&, const Compression&) = default;
};

struct LinkCompression {
  Compression push;
  Compression pull;

  friend bool operator==(const LinkCompression&, const LinkCompression&) = default;
};

[[nodiscard]] Compression::Kind compression_named(std::string_view name);
[[nodiscard]] const std::vector<std::string>& compression_names();

void check_compression(const Compression& compression, const Layout& layout);

// ceil(ratio * elements), at least one. An excess below 1e-6 over a whole number is rounded down (0.07 of 100 is 7).
[[nodiscard]] std::int64_t kept_of(double ratio, std::int64_t elements);

[[nodiscard]] std::int64_t packed_bytes(const Compression& compression, at::ScalarType dtype, std::int64_t elements);

// Tensors as they are sent: 1-d, on the CPU.
struct Packed {
  std::vector<at::Tensor> shards;  // bytes
  at::Tensor statistics;           // numbers

  [[nodiscard]] std::int64_t bytes() const;
};

// values: float32 or float64, 1-d, on the CPU, contiguous. With kNone the result is a view of them.
[[nodiscard]] at::Tensor pack(const Compression& compression, const at::Tensor& values);

[[nodiscard]] bool is_packed(const Compression& compression, at::ScalarType dtype, std::int64_t elements,
                             const at::Tensor& bytes);
[[nodiscard]] bool is_packed(const Compression& compression, const TensorsShape& shape, const Packed& packed);

// to += scale * the unpacked values, with one rounding per element and the same bits everywhere. Requires is_packed().
void add_packed(const Compression& compression, const at::Tensor& bytes, const at::Tensor& to, double scale = 1);

// Returns nothing if `bytes` is not such a shard. Elements that were not sent are 0. kNone gives a view if aligned.
[[nodiscard]] std::optional<at::Tensor> unpack(const Compression& compression, at::ScalarType dtype,
                                               std::int64_t elements, const at::Tensor& bytes);
[[nodiscard]] std::optional<Tensors> unpack(const Compression& compression, const TensorsShape& shape,
                                            const Packed& packed);

}  // namespace sluice::ps
