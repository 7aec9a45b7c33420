#include "profiler/torch_trace/trace_marks.h"

#include <memory>
#include <vector>

#include <ATen/record_function.h>

#include "core/concat.h"
#include "profiler/phase_names.h"

namespace sluice::torch_trace {
namespace {

using profiler::Pass;

enum class Kind : std::uint8_t { kAction, kLoss, kLayer };

struct Entered {
  Kind kind;
  std::unique_ptr<at::RecordFunction> bar;
};

std::vector<Entered>& of_this_thread() {
  thread_local std::vector<Entered> entered;
  return entered;
}

std::unique_ptr<at::RecordFunction> bar_of(const std::string& name) {
  auto bar = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
  if (bar->isActive()) bar->before(name);
  return bar;
}

std::string text_of(const ActionTag& action) {
  std::string text = concat(profiler::phase_word(action.phase), ", replica ", index(action.replica));
  if (action.stage != kNoStage) text += concat(" stage ", index(action.stage));
  if (action.micro_batch != kNoMicroBatch) text += concat(", micro-batch ", index(action.micro_batch));
  return text;
}

}  // namespace

void TraceMarks::enter_watch(const ActionTag& action) {
  switch (action.phase) {
    case Phase::kForward: return watch_->enter(profiler::kNoLayer, Pass::kForward);
    case Phase::kLoss:
      watch_->enter(profiler::kNoLayer, Pass::kForward);
      return watch_->enter_layer(layers_.index_of("loss"));
    case Phase::kBackward:
    case Phase::kWeightGradient: return watch_->enter(profiler::kNoLayer, Pass::kBackward);
    default: return watch_->enter_nowhere();
  }
}

void TraceMarks::enter(const ActionTag& action) noexcept {
  of_this_thread().push_back({action.phase == Phase::kLoss ? Kind::kLoss : Kind::kAction, bar_of(text_of(action))});
  if (watch_ != nullptr) enter_watch(action);
}

void TraceMarks::enter_layer(const std::string& name) noexcept {
  of_this_thread().push_back({Kind::kLayer, bar_of(name)});
  if (watch_ != nullptr) watch_->enter_layer(layers_.index_of(name));
}

void TraceMarks::leave() noexcept {
  const Kind kind = of_this_thread().back().kind;
  of_this_thread().pop_back();
  if (watch_ == nullptr) return;
  if (kind != Kind::kAction) watch_->leave_layer();
  if (kind != Kind::kLayer) watch_->leave();
}

}  // namespace sluice::torch_trace
