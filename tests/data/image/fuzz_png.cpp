#include "fuzz_format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  sluice::data::decode_any(bytes, size, sluice::data::read_png_size, sluice::data::decode_png);
  return 0;
}
