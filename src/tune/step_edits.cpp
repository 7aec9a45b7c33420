#include "tune/step_edits.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace sluice::tune {
namespace {

constexpr std::array<std::string_view, kWorkKinds> kWorkWords{"load",     "forward",    "backward", "weight-gradient",
                                                              "transfer", "all-reduce", "optimizer"};

bool is_computing(WorkKind kind) {
  return kind == WorkKind::kForward || kind == WorkKind::kBackward || kind == WorkKind::kWeightGradient ||
         kind == WorkKind::kOptimizer;
}

template <typename Value, typename Wanted>
bool is_any_or(const std::optional<Wanted>& wanted, const Value& value) {
  return !wanted || *wanted == value;
}

}  // namespace

std::string_view word(WorkKind kind) { return kWorkWords[static_cast<std::size_t>(kind)]; }

std::optional<WorkKind> work_kind(std::string_view word) {
  const auto found = std::ranges::find(kWorkWords, word);
  if (found == kWorkWords.end()) return std::nullopt;
  return static_cast<WorkKind>(found - kWorkWords.begin());
}

std::optional<WorkKind> kind_of(Phase phase) {
  switch (phase) {
    case Phase::kLoadWait: return WorkKind::kLoad;
    case Phase::kForward:
    case Phase::kLoss: return WorkKind::kForward;
    case Phase::kBackward: return WorkKind::kBackward;
    case Phase::kWeightGradient: return WorkKind::kWeightGradient;
    case Phase::kHostToDevice:
    case Phase::kSend:
    case Phase::kReceive: return WorkKind::kTransfer;
    case Phase::kAllReduce: return WorkKind::kAllReduce;
    case Phase::kOptimizer: return WorkKind::kOptimizer;
    case Phase::kReceiveWait:
    case Phase::kEvaluation:
    case Phase::kCheckpoint: return std::nullopt;
  }
  return std::nullopt;
}

bool WorkSelector::takes(const Work& work) const {
  if (kind ? *kind != work.kind : !is_computing(work.kind)) return false;
  return is_any_or(rank, work.rank) && is_any_or(replica, work.replica) && is_any_or(stage, work.stage) &&
         is_any_or(device, work.device);
}

double EditBook::edited(const Work& work, double recorded, bool is_whole) {
  double time = recorded;
  for (std::size_t i = 0; i < edits_.work.size(); ++i) {
    const WorkEdit& edit = edits_.work[i];
    if (!edit.of.takes(work)) continue;
    has_met_[i] = 1;
    time = std::max(0.0, time * edit.factor + (is_whole ? edit.more : 0));
  }
  return time;
}

void EditBook::check_all_met() const {
  for (std::size_t i = 0; i < edits_.work.size(); ++i) {
    if (has_met_[i] == 0)
      throw ConfigError(edits_.work[i].text, ": the recorded step has no such work; `sluice replay TRACE` shows ",
                        "its stages, devices and kinds of work");
  }
}

}  // namespace sluice::tune
