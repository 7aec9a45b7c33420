// libFuzzer target: any bytes as a safetensors file. A header that parses must tile the data within the file.
// Run: build/<preset>/tests/storage/fuzz_safetensors -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "core/error.h"
#include "storage/safetensors_header.h"

using sluice::train::SafetensorsHeader;

namespace {

std::uint64_t data_bytes(const SafetensorsHeader& header) {
  std::uint64_t end = 0;
  for (const auto& entry : header.entries) {
    if (entry.begin != end || entry.end < entry.begin) std::abort();
    end = entry.end;
  }
  return end;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  SafetensorsHeader header;
  try {
    header = sluice::storage::parse_safetensors_header(std::as_bytes(std::span(data, size)), "fuzz");
  } catch (const sluice::CheckpointError&) {
    return 0;  // refused, which is right for most bytes
  }
  if (header.data_begin + data_bytes(header) != size) std::abort();
  // The header can be written and reads the same; an exception ends the fuzzer.
  auto again = sluice::storage::encode_safetensors_header(header.metadata, header.entries);
  again.resize(again.size() + data_bytes(header));
  const auto twice = sluice::storage::parse_safetensors_header(std::as_bytes(std::span(again)), "again");
  if (twice.metadata != header.metadata || twice.entries.size() != header.entries.size()) std::abort();
  return 0;
}
