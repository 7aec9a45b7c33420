// Any bytes as a token file, and any two files as one of Megatron's: refused in one line, or all of it can be read.
#include <span>

#include "fuzz_reader.h"
#include "text/token_file.h"

namespace sluice::text {
namespace {

template <typename Parse>
void read_all(const Parse& parse) {
  try {
    const TokenLayout layout = parse();
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < layout.tokens * static_cast<std::uint64_t>(layout.width); ++i)
      sum += static_cast<std::uint64_t>(layout.ids[i]);
    std::uint64_t before = 0;
    for (std::uint64_t i = 0; i < layout.documents; ++i) {
      require(layout.end_of(i) >= before && layout.end_of(i) <= layout.tokens);
      before = layout.end_of(i);
    }
    require(sum + before < ~std::uint64_t{0});
  } catch (const Error& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

}  // namespace
}  // namespace sluice::text

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace sluice::text;
  const auto all = std::as_bytes(std::span(bytes, size));
  read_all([&] { return parse_token_file(all, "fuzz.bin"); });
  if (size == 0) return 0;
  const std::size_t middle = 1 + bytes[0] % size;
  read_all([&] { return parse_megatron(all.subspan(1, middle - 1), all.subspan(middle), "fuzz.bin"); });
  return 0;
}
