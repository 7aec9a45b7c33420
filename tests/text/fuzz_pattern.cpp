// Any bytes as a pattern of tokenizer.json, a zero byte, and a text: refused in one line, or matches in the text.
#include "fuzz_reader.h"
#include "text/pattern.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace sluice::text;
  const std::string content(bytes, bytes + size);
  const std::size_t end = std::min(content.find('\0'), content.size());
  std::string pattern_repaired;
  std::string text_repaired;
  const std::string pattern(repair_utf8(std::string_view(content).substr(0, end), pattern_repaired));
  const std::string text(repair_utf8(std::string_view(content).substr(end), text_repaired));
  if (pattern.size() > 200 || text.size() > 500) return 0;
  try {
    Pattern::Scratch scratch;
    std::size_t last_end = 0;
    Pattern::regex(pattern, "fuzz").for_each(text, scratch, [&](std::size_t first, std::size_t last) {
      require(first >= last_end && first <= last && last <= text.size());
      last_end = last;
    });
  } catch (const sluice::Error& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
