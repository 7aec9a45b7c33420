// idx: the file format of the MNIST family: a big-endian header, then unsigned bytes; plain or gzip.
//   bytes 0-3  magic 0x00000801 (labels, 1 dimension) or 0x00000803 (images, 3 dimensions)
//   bytes 4..  one 32-bit size per dimension, then exactly as many bytes as their product
// Not here: which files belong together and what the numbers mean (idx_dataset.h). Other element types are refused.
// Input is not trusted: nothing is allocated that the input's own length cannot account for.
// Threads: pure. Errors: DataError names file, byte offset, what was expected and what was found.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace sluice::data {

enum class IdxKind { kLabels, kImages };

struct IdxArray {
  std::vector<std::int64_t> dims;    // {count} or {count, height, width}, all positive
  std::vector<std::uint8_t> values;  // row-major, as many as the product of dims
};

// Parses the whole content of a file; a gzip header decides whether it is unpacked. `name` is only for messages.
[[nodiscard]] IdxArray parse_idx(std::span<const std::uint8_t> bytes, std::string_view name, IdxKind kind);

[[nodiscard]] IdxArray read_idx(const std::filesystem::path& file, IdxKind kind);

}  // namespace sluice::data
