// safetensors_header: what stands before the data of a safetensors file: an 8-byte little-endian length, JSON, padding.
// Parsing is a pure function of bytes (it is fuzzed); files, mapping and tensors are safetensors.h.
// Stricter than the format's official reader: the JSON begins with '{', is padded with spaces only, and has no
// duplicate and no unknown key; tensors tile the data exactly, at most 64 dimensions each. Threads: any. Errors:
// CheckpointError naming the file, the tensor and what was expected.
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
  std::vector<std::int64_t> shape;  // row-major; empty: a scalar
  std::uint64_t begin = 0;          // bytes from the start of the data
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> entries;  // in the order of their data
  std::uint64_t data_begin = 0;      // bytes from the start of the file
};

// `file` is the whole file (only the header is read, the size counts); `where` names it in errors.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, std::string_view where);

// The bytes before the data, padded with spaces to a multiple of 8. Requires: entries in the order of their data.
[[nodiscard]] std::string encode_safetensors_header(const std::map<std::string, std::string>& metadata,
                                                    const std::vector<TensorEntry>& entries);

// Position of a dtype in files: entries are written from 0 up, which puts the strictest alignment first.
// Nothing for a dtype that such files do not hold here.
[[nodiscard]] std::optional<int> safetensors_rank(c10::ScalarType dtype);

// "F64 F32 ..."
[[nodiscard]] std::string safetensors_dtypes();

// A name from a file, quoted, escaped to one line of ASCII and cut, for messages.
[[nodiscard]] std::string quoted_name(std::string_view name);

}  // namespace sluice::storage
