#include "profiler/phase_names.h"

#include <algorithm>
#include <array>

namespace sluice::profiler {
namespace {

// [Phase]
constexpr std::array kWords{"load_wait",       "host_to_device", "forward",      "loss",    "backward",
                            "weight_gradient", "send",           "receive_wait", "receive", "all_reduce",
                            "optimizer",       "evaluation",     "checkpoint"};
static_assert(kWords.size() == static_cast<std::size_t>(Phase::kCheckpoint) + 1);

}  // namespace

const char* phase_word(Phase phase) { return kWords.at(static_cast<std::size_t>(phase)); }

std::optional<Phase> phase_of(std::string_view word) {
  const auto* const found = std::ranges::find(kWords, word);
  return found == kWords.end() ? std::nullopt : std::optional(static_cast<Phase>(found - kWords.begin()));
}

}  // namespace sluice::profiler
