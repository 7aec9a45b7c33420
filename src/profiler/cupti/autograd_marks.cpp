#include "profiler/cupti/autograd_marks.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "profiler/layer_log.h"

namespace sluice::cupti {
namespace {

// A kind that LibTorch does not use.
constexpr auto kDebugInfo = static_cast<c10::DebugInfoKind>(0x53);

using profiler::LayerLog;

struct Carried final : c10::DebugInfoBase {
  Carried(const TagFields& of, std::shared_ptr<const LayerLog> layers) : fields(of), log(std::move(layers)) {}
  TagFields fields;
  std::shared_ptr<const LayerLog> log;
};

struct Entered {
  TagFields fields;
  std::unique_ptr<c10::DebugInfoGuard> guard;  // null: a layer
};

struct ThreadMarks {
  std::vector<Entered> entered;
  std::shared_ptr<LayerLog> log = std::make_shared<LayerLog>();
};

ThreadMarks& of_this_thread() {
  thread_local ThreadMarks marks;
  return marks;
}

std::atomic<Session*> session_of_callback = nullptr;

struct Pushed final : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function) {
  Session* const session = session_of_callback.load(std::memory_order_acquire);
  const auto* carried = static_cast<const Carried*>(c10::ThreadLocalDebugInfo::get(kDebugInfo));
  if (session == nullptr || carried == nullptr) return nullptr;
  TagFields fields = carried->fields;
  fields.layer = carried->log->layer_of(static_cast<std::uint64_t>(function.seqNr()));
  session->push(encode(fields));
  return std::make_unique<Pushed>();
}

void on_end(const at::RecordFunction&, at::ObserverContext* pushed) {
  Session* const session = session_of_callback.load(std::memory_order_acquire);
  if (pushed != nullptr && session != nullptr) session->pop();
}

}  // namespace

AutogradMarks::AutogradMarks(Session& session) : session_(session) {
  session_of_callback = &session;
  callback_ = at::addGlobalCallback(
      at::RecordFunctionCallback(&on_begin, &on_end).scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

AutogradMarks::~AutogradMarks() {
  at::removeCallback(callback_);
  session_of_callback = nullptr;
}

void AutogradMarks::enter(const ActionTag& action) noexcept {
  ThreadMarks& marks = of_this_thread();
  const TagFields fields{action};
  marks.entered.push_back(
      {fields, std::make_unique<c10::DebugInfoGuard>(kDebugInfo, std::make_shared<Carried>(fields, marks.log))});
  session_.push(encode(fields));
}

void AutogradMarks::enter_layer(const std::string& name) noexcept {
  ThreadMarks& marks = of_this_thread();
  TagFields fields = marks.entered.empty() ? TagFields{} : marks.entered.back().fields;
  fields.layer = session_.names().index_of(name);
  marks.log->add(at::sequence_number::peek(), fields.layer);
  marks.entered.push_back({fields, nullptr});
  session_.push(encode(fields));
}

void AutogradMarks::leave() noexcept {
  ThreadMarks& marks = of_this_thread();
  const bool is_layer = !marks.entered.back().guard;
  marks.entered.pop_back();
  if (is_layer) marks.log->add(at::sequence_number::peek(), kNoLayer);
  session_.pop();
}

}  // namespace sluice::cupti
