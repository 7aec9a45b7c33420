// Any bytes as the program of an exported model: refused in one line, or it can be cut into sections.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <nlohmann/json.hpp>

#include "any_cuts.h"
#include "core/error.h"

namespace {

void require(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace sluice::graph;
  const auto json = nlohmann::json::parse(bytes, bytes + size, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return 0;
  try {
    const Program program = parse_program(json, "fuzz.pt2");
    const CommonSections both = cut_both(program, program);
    const std::vector<Section>& sections = both.training;
    require(!sections.empty() && sections.back().outputs == program.outputs);
    for (std::size_t s = 1; s < sections.size(); ++s) require(sections[s].inputs == sections[s - 1].outputs);
    require(both.evaluation.size() == sections.size());
    static_cast<void>(cut_at(program, possible_cuts(program)));
    for (const ValueId output : program.outputs) static_cast<void>(Cutter(program).section_for(output));
  } catch (const sluice::Error& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
