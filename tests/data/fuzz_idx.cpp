// libFuzzer target: any bytes either parse or give a DataError. Build: cmake -DCMAKE_CXX_COMPILER=clang++
// -DSLUICE_FUZZ=ON, target fuzz_idx. Run: fuzz_idx -max_total_time=60 -rss_limit_mb=3000
#include <cstdlib>
#include <span>

#include "core/error.h"
#include "data/idx.h"

namespace {

void parse_and_check(std::span<const std::uint8_t> bytes, sluice::data::IdxKind kind) {
  try {
    const auto array = sluice::data::parse_idx(bytes, "fuzz", kind);
    std::size_t total = 1;
    for (const auto dim : array.dims) total *= static_cast<std::size_t>(dim);
    if (array.dims.size() != (kind == sluice::data::IdxKind::kImages ? 3U : 1U)) std::abort();
    if (total == 0 || total != array.values.size()) std::abort();
  } catch (const sluice::DataError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  parse_and_check({data, size}, sluice::data::IdxKind::kImages);
  parse_and_check({data, size}, sluice::data::IdxKind::kLabels);
  return 0;
}
