// compression: less to send between a parameter server and its workers: the values of a shard as fewer bytes, and back.
//   kNone  the values themselves
//   kBf16  each in 16 bits, rounded to nearest and ties to even, float64 by way of float32. What is finite stays so:
//          where rounding would make it infinite it is the largest bf16
//   kTopK  the largest magnitudes, kept_of() of them, of equal ones the first: their values, then their indices in the
//          shard as 32-bit numbers, ascending
// What is lost by it is its sender's to remember (push_compressor.h, pull_compressor.h). NaN and infinity are never
// lost: they count as larger than any number, so whoever gets the shard sees that something is wrong.
// The bytes are little-endian, and how many there are follows from kind, ratio, type and elements. Those that come from
// elsewhere are checked before anything is made of them; what is made is no larger than the shard.
// Not here: running statistics, which are sent as they are. Pure. Threads: any. Errors: ConfigError.
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
  double ratio = 0.01;  // of a shard's elements that kTopK keeps: > 0 and <= 1

  [[nodiscard]] bool loses() const { return kind != Kind::kNone; }
  friend bool operator==(const Compression&, const Compression&) = default;
};

struct LinkCompression {
  Compression push;
  Compression pull;

  friend bool operator==(const LinkCompression&, const LinkCompression&) = default;
};

// "none", "bf16" or "topk".
[[nodiscard]] Compression::Kind compression_named(std::string_view name);
[[nodiscard]] const std::vector<std::string>& compression_names();

// ConfigError where the shards of this layout cannot be sent like that.
void check_compression(const Compression& compression, const Layout& layout);

// How many elements of a shard kTopK keeps: ceil(ratio * elements), where a millionth more than a whole number is that
// number (0.07 of 100 is 7). At least one, so that what is not finite is seen.
[[nodiscard]] std::int64_t kept_of(double ratio, std::int64_t elements);

// How many bytes a shard takes.
[[nodiscard]] std::int64_t packed_bytes(const Compression& compression, at::ScalarType dtype, std::int64_t elements);

// Tensors as they travel: 1-d, on the CPU.
struct Packed {
  std::vector<at::Tensor> shards;  // bytes
  at::Tensor statistics;           // numbers

  [[nodiscard]] std::int64_t bytes() const;
};

// values: float32 or float64, 1-d, on the CPU, without gaps. With kNone the bytes are a view of them.
[[nodiscard]] at::Tensor pack(const Compression& compression, const at::Tensor& values);

// Whether bytes are a shard of so many numbers.
[[nodiscard]] bool is_packed(const Compression& compression, at::ScalarType dtype, std::int64_t elements,
                             const at::Tensor& bytes);
[[nodiscard]] bool is_packed(const Compression& compression, const TensorsShape& shape, const Packed& packed);

// to += scale * what the bytes are, rounded once an element. Both ends of a connection do it by this function, so what
// comes of it is the same bits. Requires: is_packed.
void add_packed(const Compression& compression, const at::Tensor& bytes, const at::Tensor& to, double scale = 1);

// The values, 0 where there is none; nothing where bytes are no such shard. With kNone a view of the bytes where they
// lie as numbers must.
[[nodiscard]] std::optional<at::Tensor> unpack(const Compression& compression, at::ScalarType dtype,
                                               std::int64_t elements, const at::Tensor& bytes);
[[nodiscard]] std::optional<Tensors> unpack(const Compression& compression, const TensorsShape& shape,
                                            const Packed& packed);

}  // namespace sluice::ps
