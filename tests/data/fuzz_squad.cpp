// Any bytes as SQuAD's JSON: refused in one line, or answers stand where they say.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "data/squad_file.h"
#include "text/utf8.h"

namespace {

void require(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace sluice;
  try {
    const data::SquadFile file = data::parse_squad({reinterpret_cast<const char*>(bytes), size}, "fuzz.json");
    require(!file.questions.empty());
    for (const data::Question& question : file.questions) {
      require(question.context < file.contexts.size());
      if (question.begin < 0) continue;
      const auto characters = static_cast<std::int64_t>(text::count_points(file.contexts[question.context]));
      require(question.begin <= question.end && question.end <= characters);
    }
  } catch (const Error& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
