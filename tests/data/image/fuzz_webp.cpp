#include "fuzz_format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  sluice::data::decode_any(bytes, size, sluice::data::read_webp_size, sluice::data::decode_webp);
  return 0;
}
