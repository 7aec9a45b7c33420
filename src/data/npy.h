// npy: parses a NumPy array file (format 1.0 to 3.0): little-endian whole numbers in C order. No LibTorch, because the
// fuzzer builds it. Errors: DataError, as in file.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::data {

struct NpyArray {
  std::string type;                 // kind and bytes of a number: "u1", "i4", ...
  std::vector<std::int64_t> shape;  // empty for a single number; never negative
  std::span<const std::uint8_t> bytes;
};

// `name`: the file, for errors. The result points into `file`.
[[nodiscard]] NpyArray parse_npy(std::span<const std::uint8_t> file, std::string_view name);

[[nodiscard]] std::vector<std::int64_t> whole_numbers(const NpyArray& array, std::string_view name);

}  // namespace sluice::data
