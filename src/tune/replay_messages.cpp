#include "tune/replay_messages.h"

#include <algorithm>
#include <compare>
#include <map>

#include "core/error.h"

namespace sluice::tune {
namespace {

enum class Cargo : std::uint8_t { kFeatures, kActivation, kGradient };

// Destination of a message. For features also the share, in the order of their devices.
struct Address {
  ReplicaId replica;
  Cargo cargo = Cargo::kActivation;
  int stage = 0;
  MicroBatchId micro_batch;
  int share = 0;

  auto operator<=>(const Address&) const = default;
};

class Mail {
 public:
  explicit Mail(const std::vector<StepSpans::Slot>& slots) : slots_(slots) {
    for (const StepSpans::Slot& slot : slots)
      for (const StageId stage : slot.stages) last_stage_ = std::max(last_stage_, index(stage));
  }

  std::vector<RecordedMessage> run() {
    for (int p = 0; p < static_cast<int>(slots_.size()); ++p)
      for (int s = 0; s < static_cast<int>(slots_[p].spans.size()); ++s) add({p, s});
    std::vector<RecordedMessage> messages;
    for (const auto& [stage, waits] : waits_) add_messages(stage, waits, messages);
    return messages;
  }

 private:
  struct Key {
    ReplicaId replica;
    int stage;
    MicroBatchId micro_batch;

    auto operator<=>(const Key&) const = default;
  };

  void add(const SpanAt& at) {
    const StepSpans::Slot& slot = slots_[at.slot];
    const Span& span = slot.spans[at.span];
    const Key key{slot.replica, index(span.stage), span.micro_batch};
    if (span.phase == Phase::kReceiveWait) waits_[key].push_back(at);
    if (span.phase == Phase::kSend) sent_.emplace(address_of(key, sends_[key]++), at);
  }

  [[nodiscard]] Address address_of(const Key& key, int number) const {
    const auto to = [&](Cargo cargo, int stage, int share = 0) {
      return Address{key.replica, cargo, stage, key.micro_batch, share};
    };
    if (key.stage < 0) return to(Cargo::kFeatures, 0, number);
    if (number == 0 && key.stage < last_stage_) return to(Cargo::kActivation, key.stage + 1);
    return to(Cargo::kGradient, key.stage - 1);
  }

  // Features come first; only the first stage receives them.
  void add_messages(const Key& key, const std::vector<SpanAt>& waits, std::vector<RecordedMessage>& messages) const {
    const int count = static_cast<int>(waits.size());
    const int gradients = key.stage < last_stage_ ? 1 : 0;
    for (int i = 0; i < count; ++i) {
      const Cargo forward = key.stage == 0 ? Cargo::kFeatures : Cargo::kActivation;
      const Cargo cargo = i >= count - gradients ? Cargo::kGradient : forward;
      const auto sent = sent_.find({key.replica, cargo, key.stage, key.micro_batch, cargo == Cargo::kFeatures ? i : 0});
      if (sent == sent_.end()) {
        throw DataError("the trace lacks spans: replica ", index(key.replica), " stage ", key.stage,
                        " waits for micro-batch ", index(key.micro_batch), ", which no stage has sent; record the ",
                        "step again");
      }
      messages.push_back({sent->second, waits[i]});
    }
  }

  const std::vector<StepSpans::Slot>& slots_;
  int last_stage_ = 0;
  std::map<Key, std::vector<SpanAt>> waits_;
  std::map<Key, int> sends_;
  std::map<Address, SpanAt> sent_;
};

}  // namespace

std::vector<RecordedMessage> messages_of(const std::vector<StepSpans::Slot>& slots) { return Mail(slots).run(); }

}  // namespace sluice::tune
