#include "pipeline/schedule/memory_trace.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>

#include "core/check.h"
#include "pipeline/schedule/action_index.h"
#include "pipeline/schedule/inspect.h"

namespace sluice::pipeline {

// Lent tensors of one device. Another device's progress is known only from the last result that arrived.
class MemoryTrace::Loans {
 public:
  Loans(const ActionIndex& index, int device, std::size_t devices, bool trains)
      : index_(&index), device_(device), trains_(trains), done_(devices, -1), open_(devices) {}

  void begin(const Action& action) {
    if (const ActionPosition source = index_->source(action)) note_done(source);
  }

  void end(const Action& action, int position) {
    note_done({device_, position});
    const StageId stage = action.stage;
    if (action.op == Op::kForward && !trains_) {
      if (const ActionPosition receiver = index_->receiver(action)) {
        lend(Change::kOutputOfGradient, stage, receiver);
        lend(Change::kOutputOfLast, stage, receiver);
      }
    }
    if (!makes_input_gradient(action.op)) return;
    // The B or I waited for the next stage's; the previous stage waits for it.
    if (const ActionPosition next = index_->source(action)) {
      lend(Change::kOutputOfGradient, stage, next);
      lend(Change::kOutputOfLast, stage, index_->find_last(index_->at(next)));
    }
    if (const ActionPosition before = index_->receiver(action)) {
      lend(Change::kGradientOfGradient, stage, before);
      lend(Change::kGradientOfLast, stage, index_->find_last(index_->at(before)));
    }
  }

  void give_back(std::vector<Event>& events) {
    for (std::size_t device = 0; device < open_.size(); ++device) {
      auto& loans = open_[device];
      for (; !loans.empty() && loans.top().last_use <= done_[device]; loans.pop()) events.push_back(loans.top().end);
    }
  }

 private:
  struct Loan {
    int last_use;  // position in the borrower's list
    Event end;

    bool operator>(const Loan& other) const { return last_use > other.last_use; }
  };
  using FirstToEnd = std::priority_queue<Loan, std::vector<Loan>, std::greater<>>;

  void note_done(ActionPosition where) {
    int& done = done_[static_cast<std::size_t>(where.device)];
    done = std::max(done, where.position);
  }
  void lend(Change end, StageId stage, ActionPosition last_use) {
    open_[static_cast<std::size_t>(last_use.device)].push({last_use.position, {end, index(stage)}});
  }

  const ActionIndex* index_;
  int device_;
  bool trains_;
  std::vector<int> done_;         // [device], position
  std::vector<FirstToEnd> open_;  // [borrowing device]
};

class MemoryTrace::Held {
 public:
  explicit Held(bool trains) : trains_(trains) {}

  void own(const StageBytes& stage) { add(stage.fixed); }

  void run(Change change, const StageBytes& stage) {
    switch (change) {
      case Change::kForward:
        reach(stage.forward_working);
        add(stage.activation + stage.lent_output.total());
        if (!trains_) now_ -= stage.activation;
        break;
      case Change::kBackward:
        reach(stage.backward_working);
        add(stage.lent_gradient.total() - stage.activation);
        break;
      case Change::kInputGradient:
        reach(stage.input_working);
        add(stage.stash + stage.lent_gradient.total() - stage.activation);
        break;
      case Change::kWeightGradient:
        reach(stage.weight_working);
        now_ -= stage.stash;
        break;
      case Change::kOutputOfGradient: now_ -= stage.lent_output.until_gradient; break;
      case Change::kOutputOfLast: now_ -= stage.lent_output.until_last; break;
      case Change::kGradientOfGradient: now_ -= stage.lent_gradient.until_gradient; break;
      case Change::kGradientOfLast: now_ -= stage.lent_gradient.until_last; break;
    }
  }

  [[nodiscard]] std::int64_t peak() const { return peak_; }

 private:
  void add(std::int64_t bytes) {
    now_ += bytes;
    reach(0);
  }
  void reach(std::int64_t working) { peak_ = std::max(peak_, now_ + working); }

  bool trains_;
  std::int64_t now_ = 0;
  std::int64_t peak_ = 0;
};

std::vector<MemoryTrace::Event> MemoryTrace::events_of(const std::vector<Action>& actions, Loans loans) {
  const auto change_of = [](Op op) -> std::optional<Change> {
    switch (op) {
      case Op::kForward: return Change::kForward;
      case Op::kBackward: return Change::kBackward;
      case Op::kInputGradient: return Change::kInputGradient;
      case Op::kWeightGradient: return Change::kWeightGradient;
      case Op::kReduceGradient: break;
    }
    return std::nullopt;
  };
  std::vector<Event> events;
  for (std::size_t position = 0; position < actions.size(); ++position) {
    const Action& action = actions[position];
    loans.begin(action);
    loans.give_back(events);
    if (const auto change = change_of(action.op)) events.push_back({*change, index(action.stage)});
    loans.end(action, static_cast<int>(position));
    loans.give_back(events);
  }
  return events;
}

MemoryTrace::MemoryTrace(const Schedule& schedule)
    : trains_(!is_forward_only(schedule)), count_(schedule.stages), stages_(schedule.devices.size()) {
  const ActionIndex index(schedule);
  for (int stage = 0; stage < schedule.stages; ++stage)
    stages_[static_cast<std::size_t>(index.owner(static_cast<StageId>(stage)))].push_back(stage);
  for (const auto& actions : schedule.devices)
    events_.push_back(
        events_of(actions, Loans(index, static_cast<int>(events_.size()), schedule.devices.size(), trains_)));
}

std::int64_t MemoryTrace::peak_bytes(int device, std::span<const StageBytes> stages) const {
  check(static_cast<int>(stages.size()) == count_, "bytes of every stage");
  check(stages.back().lent_output.total() == 0 && stages.front().lent_gradient.total() == 0,
        "no tensors lent beyond the ends of the pipeline");
  Held held(trains_);
  const auto d = static_cast<std::size_t>(device);
  const auto of = [&](int stage) -> const StageBytes& { return stages[static_cast<std::size_t>(stage)]; };
  for (const int stage : stages_[d]) held.own(of(stage));
  for (const Event& event : events_[d]) held.run(event.change, of(event.stage));
  return held.peak();
}

}  // namespace sluice::pipeline
