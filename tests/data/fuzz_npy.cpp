// Any bytes as a file of NumPy: an array whose bytes are as many as its shape says, or one DataError.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "core/error.h"
#include "data/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice::data;
  try {
    const NpyArray array = parse_npy(std::span(data, size), "fuzz");
    std::int64_t count = 1;
    for (const std::int64_t dimension : array.shape) count *= dimension;
    if (count * (array.type[1] - '0') != std::ssize(array.bytes)) std::abort();
    if (std::ssize(whole_numbers(array, "fuzz")) != count) std::abort();
  } catch (const sluice::DataError&) {
  }
  return 0;
}
