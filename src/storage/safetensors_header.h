// safetensors_header: the part of a safetensors file before the data: an 8-byte little-endian length, JSON, padding.
// Stricter than the official reader: the JSON begins with '{', is padded with spaces only, and has no duplicate or
// unknown keys; tensors tile the data exactly and have at most 64 dimensions. Parsing is a pure function of bytes (it
// is fuzzed). Errors: CheckpointError naming the file, the tensor and what was expected.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::storage {

struct TensorEntry {
  std::string name;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<std::int64_t> shape;  // row-major; empty for a scalar
  std::uint64_t begin = 0;          // byte offset from the start of the data
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> entries;
  std::uint64_t data_begin = 0;  // byte offset from the start of the file
};

// `file` spans the whole file, but only the header is read; `where` names it in errors.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, std::string_view where);

// Returns the bytes before the data, padded with spaces to a multiple of 8. Requires: entries in data order.
[[nodiscard]] std::string encode_safetensors_header(const std::map<std::string, std::string>& metadata,
                                                    const std::vector<TensorEntry>& entries);

// Position of a dtype in the file order (0: strictest alignment); nothing for unsupported dtypes.
[[nodiscard]] std::optional<int> safetensors_rank(c10::ScalarType dtype);

[[nodiscard]] std::string safetensors_dtypes();

// Returns a name from a file for messages: quoted, escaped to one line of ASCII, and shortened.
[[nodiscard]] std::string quoted_name(std::string_view name);

}  // namespace sluice::storage
