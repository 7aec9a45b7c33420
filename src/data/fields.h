// fields: the named tensors of samples, and their description.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace sluice::data {

// By name: [n, ...] each, on the CPU.
using Fields = std::map<std::string, at::Tensor, std::less<>>;

inline constexpr const char *kInputs = "inputs", *kTargets = "targets";
// Fields of texts. mask: 1 for tokens and 0 for padding, or the number of the document in its row, from 1. types: 0 and
// 1 for the texts of a pair. positions: of tokens in their document.
inline constexpr const char *kMask = "mask", *kTypes = "types", *kPositions = "positions";
inline constexpr const char *kStarts = "starts", *kEnds = "ends";  // first and last token of an answer

inline constexpr std::int64_t kNoTarget = -100;  // a target that is not counted (task/task.h)

struct FieldInfo {
  std::string name;
  at::ScalarType type = at::kLong;
  std::vector<std::int64_t> sizes;  // of a sample; -1: they vary
  bool is_optional = false;         // not in each batch
  // Smallest and largest of whole numbers that are in memory, apart from kNoTarget; lowest > highest: unknown.
  std::int64_t lowest = 0, highest = -1;
};

// at::empty without its fill, which would start an OpenMP region under deterministic algorithms.
[[nodiscard]] at::Tensor uninitialized(at::IntArrayRef sizes, at::ScalarType type, bool pins = false);

}  // namespace sluice::data
