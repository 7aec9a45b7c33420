// libFuzzer target: any bytes as a safetensors file. A header that parses must tile the data within the file.
// Run: build/<preset>/tests/train/records/fuzz_safetensors -max_total_time=60
#include <cstdlib>

#include "core/error.h"
#include "train/records/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto header = sluice::train::parse_safetensors_header(std::as_bytes(std::span(data, size)), "fuzz");
    std::uint64_t end = 0;
    for (const auto& entry : header.entries) {
      if (entry.begin != end || entry.end < entry.begin) std::abort();
      end = entry.end;
    }
    if (header.data_begin + end != size) std::abort();
    // Names are distinct and valid UTF-8, so that the header can be written again and says the same.
    const auto again = sluice::train::encode_safetensors_header(header.metadata, header.entries);
    if (again.size() % 8 != 0) std::abort();
  } catch (const sluice::CheckpointError&) {
    return 0;
  }
  return 0;
}
