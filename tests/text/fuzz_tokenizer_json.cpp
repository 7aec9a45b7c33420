#include "fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace sluice::text;
  fuzz_reader(bytes, size, [](const std::string& content) { return parse_tokenizer_json(content, "fuzz"); });
  return 0;
}
