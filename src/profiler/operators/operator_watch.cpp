#include "profiler/operators/operator_watch.h"

#include <atomic>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include "core/check.h"
#include "profiler/nested_calls.h"
#include "profiler/operators/call_cost.h"

namespace sluice::operators {

using profiler::OperatorKey;
using profiler::OperatorSum;
using profiler::Pass;

namespace {

struct At {
  int layer = profiler::kNoLayer;
  Pass pass = Pass::kForward;
  bool is_watched = false;
};

}  // namespace

struct ThreadCalls {
  At at;
  std::vector<At> before;
  profiler::LayerLog log;
  profiler::NestedCalls calls;
  profiler::OperatorSums sums;
  std::map<std::string, OperatorTraits, std::less<>> traits;
  // Layer of the last autograd function; AccumulateGrad follows it without a sequence number.
  int last_layer = profiler::kNoLayer;
  Nanoseconds cost = 0;
};

namespace {

std::atomic<OperatorWatch*> the_watch = nullptr;

struct InCall final : at::ObserverContext {
  explicit InCall(ThreadCalls& of) : thread(of) {}
  ThreadCalls& thread;
  OperatorTraits traits;
  profiler::CallShapes shapes;
  std::vector<profiler::Touched> touched;
};

const OperatorTraits& traits_in(ThreadCalls& thread, const at::RecordFunction& call) {
  const auto found = thread.traits.find(std::string_view(call.name()));
  return found != thread.traits.end() ? found->second
                                      : thread.traits.emplace(call.name(), traits_of(call)).first->second;
}

// 0 for a call that threw or whose arguments do not fit its formula.
double flops_of(InCall& call, std::span<const c10::IValue> outputs) {
  if (call.traits.formula == nullptr || outputs.empty()) return 0;
  call.shapes.outputs = shapes_of(outputs);
  try {
    return call.traits.formula(call.shapes);
  } catch (const std::out_of_range&) {
    return 0;
  }
}

// The engine calls each function of a graph under a name that contains the function's name.
std::string_view row_of(std::string_view name) { return name.starts_with("autograd::") ? "autograd" : name; }

void add(ThreadCalls& thread, std::string_view name, const profiler::SelfCost& own) {
  const bool follows = thread.at.layer == profiler::kNoLayer && thread.at.pass == Pass::kBackward;
  const int layer = follows ? thread.last_layer : thread.at.layer;
  OperatorSum& sum = thread.sums[OperatorKey{layer, thread.at.pass, std::string(row_of(name))}];
  sum += {1, own.self, own.flops, static_cast<double>(own.bytes)};
}

}  // namespace

struct Observer {
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
    OperatorWatch* const watch = the_watch.load(std::memory_order_acquire);
    if (watch == nullptr) return nullptr;
    const Nanoseconds called = watch->clock_();
    ThreadCalls& thread = watch->of_this_thread();
    if (!thread.at.is_watched) return nullptr;
    auto context = std::make_unique<InCall>(thread);
    if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
      thread.before.push_back(thread.at);
      const int layer =
          call.seqNr() < 0 ? thread.last_layer : thread.log.layer_of(static_cast<std::uint64_t>(call.seqNr()));
      if (layer != profiler::kNoLayer) thread.at.layer = layer;
      thread.last_layer = layer;
      return context;
    }
    context->traits = traits_in(thread, call);
    if (context->traits.formula != nullptr)
      context->shapes = {.inputs = shapes_of(call.inputs()), .flags = flags_of(call.inputs())};
    if (!context->traits.touches_nothing) add_touched_inputs(context->traits, call.inputs(), context->touched);
    const Nanoseconds begins = watch->clock_();
    thread.cost += begins - called;
    thread.calls.enter(called, begins);
    return context;
  }

  static void end(const at::RecordFunction& call, at::ObserverContext* context) {
    OperatorWatch* const watch = the_watch.load(std::memory_order_acquire);
    if (context == nullptr || watch == nullptr) return;
    const Nanoseconds ended = watch->clock_();
    auto& in_call = *static_cast<InCall*>(context);
    ThreadCalls& thread = in_call.thread;
    if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
      thread.at = thread.before.back();
      thread.before.pop_back();
      return;
    }
    profiler::CallCost whole{.touched = std::move(in_call.touched)};
    if (!in_call.traits.touches_nothing) add_touched(call.outputs(), whole.touched);
    whole.flops = flops_of(in_call, call.outputs());
    add(thread, call.name(), thread.calls.end_call(ended, std::move(whole)));
    const Nanoseconds done = watch->clock_();
    thread.cost += done - ended;
    thread.calls.end_watch(done);
  }
};

OperatorWatch::OperatorWatch(Threads threads, Clock clock) : clock_(clock) {
  static std::atomic<std::uint64_t> made = 0;
  id_ = ++made;
  OperatorWatch* none = nullptr;
  check(the_watch.compare_exchange_strong(none, this), "one OperatorWatch at a time");
  auto callback = at::RecordFunctionCallback(&Observer::begin, &Observer::end)
                      .needsInputs(true)
                      .needsOutputs(true)
                      .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION});
  callback_ = threads == Threads::kAll ? at::addGlobalCallback(callback) : at::addThreadLocalCallback(callback);
}

OperatorWatch::~OperatorWatch() {
  at::removeCallback(callback_);
  the_watch = nullptr;
}

ThreadCalls& OperatorWatch::of_this_thread() {
  struct Known {
    std::uint64_t watch = 0;
    ThreadCalls* calls = nullptr;
  };
  thread_local Known known;
  if (known.watch == id_) return *known.calls;
  const std::scoped_lock lock(mutex_);
  known = {id_, threads_.emplace_back(std::make_unique<ThreadCalls>()).get()};
  return *known.calls;
}

void OperatorWatch::enter(int layer, Pass pass) {
  ThreadCalls& thread = of_this_thread();
  thread.before.push_back(std::exchange(thread.at, {layer, pass, true}));
  thread.last_layer = profiler::kNoLayer;
}

void OperatorWatch::enter_nowhere() {
  ThreadCalls& thread = of_this_thread();
  thread.before.push_back(std::exchange(thread.at, {}));
}

void OperatorWatch::leave() {
  ThreadCalls& thread = of_this_thread();
  thread.at = thread.before.back();
  thread.before.pop_back();
}

void OperatorWatch::enter_layer(int layer) {
  ThreadCalls& thread = of_this_thread();
  thread.log.add(at::sequence_number::peek(), layer);
  thread.before.push_back(thread.at);
  thread.at.layer = layer;
}

void OperatorWatch::leave_layer() {
  leave();
  of_this_thread().log.add(at::sequence_number::peek(), profiler::kNoLayer);
}

profiler::OperatorSums OperatorWatch::take() {
  const std::scoped_lock lock(mutex_);
  profiler::OperatorSums all;
  for (const auto& thread : threads_) {
    for (const auto& [key, sum] : thread->sums) all[key] += sum;
    thread->sums.clear();
  }
  return all;
}

Nanoseconds OperatorWatch::take_cost() { return std::exchange(of_this_thread().cost, 0); }

}  // namespace sluice::operators
