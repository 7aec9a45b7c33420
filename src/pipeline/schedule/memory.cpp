#include "pipeline/schedule/memory.h"

#include <algorithm>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/inspect.h"

namespace sluice::pipeline {
namespace {

// Where the actions of each stage and micro-batch lie in the list of their device.
class Places {
 public:
  explicit Places(const Schedule& schedule)
      : micro_batches_(schedule.micro_batches),
        owners_(stage_owners(schedule)),
        places_(static_cast<std::size_t>(schedule.stages) * static_cast<std::size_t>(schedule.micro_batches)) {
    for (const auto& actions : schedule.devices) {
      for (std::size_t place = 0; place < actions.size(); ++place) note(actions[place], place);
    }
  }

  struct OfMicroBatch {
    std::size_t forward = 0;
    std::size_t gradient = 0;  // B or I
    std::size_t last = 0;      // B or W
  };
  [[nodiscard]] const OfMicroBatch& of(int stage, MicroBatchId micro_batch) const {
    return places_[position(stage, micro_batch)];
  }
  [[nodiscard]] std::size_t owner(int stage) const {
    return static_cast<std::size_t>(owners_[static_cast<std::size_t>(stage)]);
  }

 private:
  [[nodiscard]] std::size_t position(int stage, MicroBatchId micro_batch) const {
    return static_cast<std::size_t>(stage * micro_batches_ + index(micro_batch));
  }
  void note(const Action& action, std::size_t place) {
    if (action.op == Op::kReduceGradient) return;
    OfMicroBatch& of = places_[position(index(action.stage), action.micro_batch)];
    if (action.op == Op::kForward) of.forward = place;
    if (makes_input_gradient(action.op)) of.gradient = place;
    if (action.op == Op::kBackward || action.op == Op::kWeightGradient) of.last = place;
  }

  int micro_batches_;
  std::vector<int> owners_;
  std::vector<OfMicroBatch> places_;
};

}  // namespace

// What the stages of one device have lent others. Another device is known to be as far as the action whose
// result arrived last.
class MemoryTrace::Loans {
 public:
  Loans(const Schedule& schedule, const Places& places, std::size_t device)
      : places_(places), last_stage_(schedule.stages - 1), device_(device), done_(schedule.devices.size(), 0) {}

  void begin(const Action& action) {
    const int stage = index(action.stage);
    if (action.op == Op::kForward && stage > 0) hear(stage - 1, places_.of(stage - 1, action.micro_batch).forward);
    if (makes_input_gradient(action.op) && stage < last_stage_)
      hear(stage + 1, places_.of(stage + 1, action.micro_batch).gradient);
  }

  void end(const Action& action, std::size_t place) {
    done_[device_] = place + 1;
    if (!makes_input_gradient(action.op)) return;
    const int stage = index(action.stage);
    if (stage < last_stage_) {
      const std::size_t last_use = places_.of(stage + 1, action.micro_batch).last;
      open_.push_back({{Change::kOutputBack, stage}, places_.owner(stage + 1), last_use});
    }
    if (stage > 0) {
      const std::size_t last_use = places_.of(stage - 1, action.micro_batch).gradient;
      open_.push_back({{Change::kGradientBack, stage}, places_.owner(stage - 1), last_use});
    }
  }

  // Since the last call.
  [[nodiscard]] std::vector<Event> given_back() {
    std::vector<Event> events;
    std::erase_if(open_, [&](const Loan& loan) {
      const bool is_over = done_[loan.borrower] > loan.last_use;
      if (is_over) events.push_back(loan.end);
      return is_over;
    });
    return events;
  }

 private:
  struct Loan {
    Event end;
    std::size_t borrower;  // a device
    std::size_t last_use;  // in its list
  };

  void hear(int stage, std::size_t place) {
    std::size_t& done = done_[places_.owner(stage)];
    done = std::max(done, place + 1);
  }

  const Places& places_;
  int last_stage_;
  std::size_t device_;
  std::vector<std::size_t> done_;  // [device], actions
  std::vector<Loan> open_;         // those that the lender itself needs no longer
};

class MemoryTrace::Held {
 public:
  explicit Held(bool trains) : trains_(trains) {}

  void own(const StageBytes& stage) { add(stage.fixed); }

  void run(Change change, const StageBytes& stage) {
    switch (change) {
      case Change::kForward:
        reach(stage.forward_working);
        add(stage.activation + stage.lent_output);
        if (!trains_) now_ -= stage.activation + stage.lent_output;
        break;
      case Change::kBackward:
        reach(stage.backward_working);
        add(stage.lent_gradient - stage.activation);
        break;
      case Change::kInputGradient:
        reach(stage.input_working);
        add(stage.stash + stage.lent_gradient - stage.activation);
        break;
      case Change::kWeightGradient:
        reach(stage.weight_working);
        now_ -= stage.stash;
        break;
      case Change::kOutputBack: now_ -= stage.lent_output; break;
      case Change::kGradientBack: now_ -= stage.lent_gradient; break;
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

MemoryTrace::Change MemoryTrace::change_of(Op op) {
  switch (op) {
    case Op::kForward: return Change::kForward;
    case Op::kBackward: return Change::kBackward;
    case Op::kInputGradient: return Change::kInputGradient;
    case Op::kWeightGradient: return Change::kWeightGradient;
    case Op::kReduceGradient: break;
  }
  check(false, "an action that changes what is held");
  return Change::kForward;
}

MemoryTrace::MemoryTrace(const Schedule& schedule)
    : trains_(!is_forward_only(schedule)), stages_(schedule.devices.size()), events_(schedule.devices.size()) {
  const Places places(schedule);
  for (int stage = 0; stage < schedule.stages; ++stage) stages_[places.owner(stage)].push_back(stage);
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    const auto& actions = schedule.devices[device];
    Loans loans(schedule, places, device);
    std::vector<Event>& events = events_[device];
    const auto give_back = [&] {
      for (const Event& event : loans.given_back()) events.push_back(event);
    };
    for (std::size_t place = 0; place < actions.size(); ++place) {
      const Action& action = actions[place];
      if (action.op == Op::kReduceGradient) continue;
      loans.begin(action);
      give_back();
      events.push_back({change_of(action.op), index(action.stage)});
      loans.end(action, place);
      give_back();
    }
  }
}

std::int64_t MemoryTrace::peak_bytes(int device, std::span<const StageBytes> stages) const {
  Held held(trains_);
  const auto d = static_cast<std::size_t>(device);
  const auto of = [&](int stage) -> const StageBytes& { return stages[static_cast<std::size_t>(stage)]; };
  for (const int stage : stages_[d]) held.own(of(stage));
  for (const Event& event : events_[d]) held.run(event.change, of(event.stage));
  return held.peak();
}

std::vector<std::int64_t> peak_bytes(const Schedule& schedule, std::span<const StageBytes> stages) {
  check(static_cast<int>(stages.size()) == schedule.stages, "bytes of every stage");
  const MemoryTrace trace(schedule);
  std::vector<std::int64_t> peaks;
  for (int device = 0; device < static_cast<int>(schedule.devices.size()); ++device)
    peaks.push_back(trace.peak_bytes(device, stages));
  return peaks;
}

void require_bytes(const Schedule& schedule, std::span<const StageBytes> stages,
                   std::span<const std::int64_t> budgets) {
  check(budgets.size() == schedule.devices.size(), "a budget per device");
  const auto peaks = peak_bytes(schedule, stages);
  for (std::size_t device = 0; device < peaks.size(); ++device) {
    if (peaks[device] <= budgets[device]) continue;
    throw ConfigError(concat("schedule '", schedule.name, "' needs ",
                             human_bytes(static_cast<std::uint64_t>(peaks[device])), " on device ", device,
                             ", more than the ", human_bytes(static_cast<std::uint64_t>(budgets[device])),
                             " there are; choose one with fewer micro-batches in flight, or more stages"));
  }
}

std::vector<StageBytes> share_bytes(const Schedule& schedule, std::span<const StageBytes> devices) {
  check(devices.size() == schedule.devices.size(), "bytes of every device");
  const auto counts = stages_per_device(schedule);
  std::vector<bool> has_first(devices.size(), false);
  std::vector<StageBytes> stages;
  for (const int owner : stage_owners(schedule)) {
    const auto device = static_cast<std::size_t>(owner);
    const auto share = [&](std::int64_t whole) {
      return whole / counts[device] + (has_first[device] ? 0 : whole % counts[device]);
    };
    const StageBytes& whole = devices[device];
    StageBytes stage{.fixed = share(whole.fixed),
                     .activation = share(whole.activation),
                     .stash = share(whole.stash),
                     .lent_output = share(whole.lent_output),
                     .lent_gradient = share(whole.lent_gradient)};
    // One action runs at a time.
    stage.forward_working = whole.forward_working, stage.backward_working = whole.backward_working;
    stage.input_working = whole.input_working, stage.weight_working = whole.weight_working;
    stages.push_back(stage);
    has_first[device] = true;
  }
  return stages;
}

}  // namespace sluice::pipeline
