// idx: the file format of the MNIST family: a big-endian header, then unsigned bytes; plain or gzip.
//   bytes 0-3  magic 0x00000801 (labels, 1 dimension) or 0x00000803 (images, 3 dimensions)
//   bytes 4..  one 32-bit size per dimension, then exactly as many bytes as their product
// Input is not trusted: allocations are bounded by its own length. Errors: DataError with file and byte offset.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace sluice::data {

enum class IdxKind { kLabels, kImages };

struct IdxArray {
  std::vector<std::int64_t> dims;  // {count} or {count, height, width}, all positive
  std::vector<std::uint8_t> values;
};

// Parses the content of a file, which is unpacked if it has a gzip header. `name`: for messages.
[[nodiscard]] IdxArray parse_idx(std::span<const std::uint8_t> bytes, std::string_view name, IdxKind kind);

[[nodiscard]] IdxArray read_idx(const std::filesystem::path& file, IdxKind kind);

}  // namespace sluice::data
