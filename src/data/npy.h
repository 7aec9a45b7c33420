// npy: NumPy's file of one array (format 1.0 to 3.0): its header, checked against the file's size. Little-endian whole
// numbers in C order only. No LibTorch: the fuzzer builds it. Not here: what the numbers mean (npy_dataset.h).
// Threads: pure. Errors: DataError, as of file.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::data {

struct NpyArray {
  std::string type;                     // "u1", "i4", ...: kind and bytes of a number
  std::vector<std::int64_t> shape;      // none for a single number; never negative
  std::span<const std::uint8_t> bytes;  // of all numbers
};

// `name`: the file, for errors. The result points into `file`.
[[nodiscard]] NpyArray parse_npy(std::span<const std::uint8_t> file, std::string_view name);

// Any of its kinds, as 64 bits. DataError for those that do not fit.
[[nodiscard]] std::vector<std::int64_t> whole_numbers(const NpyArray& array, std::string_view name);

}  // namespace sluice::data
