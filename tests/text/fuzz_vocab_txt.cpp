#include "fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace sluice::text;
  fuzz_reader(bytes, size, [](const std::string& content) { return parse_vocab_txt(content, "fuzz"); });
  return 0;
}
