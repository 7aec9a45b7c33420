// What the fuzzers of tokenizer files share: any bytes are refused in one line, or make a tokenizer that encodes and
// decodes.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"
#include "text/tokenizer.h"

namespace sluice::text {

inline void require(bool ok) {
  if (!ok) std::abort();
}

inline void use(const Tokenizer& tokenizer, std::string_view text) {
  const Encoding encoding = tokenizer.encode(text, "b a\xcc\x81 [SEP]");
  require(encoding.ids.size() == encoding.offsets.size() && encoding.ids.size() == encoding.type_ids.size());
  require(encoding.ids.size() == encoding.sequence_ids.size());
  for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
    require(encoding.offsets[i].begin <= text.size() + 9 && encoding.offsets[i].end <= text.size() + 9);
  }
  (void)tokenizer.decode(encoding.ids);
}

template <typename Parse>
void fuzz_reader(const std::uint8_t* bytes, std::size_t size, Parse&& parse) {
  const std::string content(bytes, bytes + size);
  try {
    const Tokenizer tokenizer(parse(content));
    use(tokenizer, "Hello wo\xcc\x88rld\xff 3.14 \xe6\x97\xa5\xe6\x9c\xac\n");
    use(tokenizer, std::string_view(content).substr(0, 200));
  } catch (const Error& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

}  // namespace sluice::text
