// recorder: what each thread of a run did when, as spans of time. A thread writes into a ring of its own; the thread
// that drives the step takes the spans out after the step.
// Not here: what the spans add up to (profiler/breakdown.h); reading a GPU's clock (device/stream.h, Moment).
// Threads: each Track has one writer at a time and one reader, side by side, without locks: a span that was added
// before collect() was called is in its answer. Memory is taken once, by add_track(). A ring that is full drops the
// newest spans and counts them. Cost: two readings of the clock and one store a span; one branch when nothing is
// recorded.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/ids.h"

namespace sluice {

class ActionMarks;  // core/action_marks.h

enum class Phase : std::uint8_t {
  kLoadWait,        // for the loader's next batch
  kHostToDevice,    // samples and targets onto the device
  kForward,         // without the loss
  kLoss,            // and its gradient's start
  kBackward,        // of a whole micro-batch, or of its inputs where the weight gradients are deferred
  kWeightGradient,  // those that were deferred
  kSend,            // hands a tensor to a neighbouring stage
  kReceiveWait,     // for a neighbouring stage to send
  kReceive,         // copies a tensor from another device
  kAllReduce,       // adds gradients up
  kOptimizer,
  kEvaluation,
  kCheckpoint,
};

inline constexpr MicroBatchId kNoMicroBatch{-1};
inline constexpr StageId kNoStage{-1};

// Of a device's time. On a GPU the calls run ahead of it: the host's interval is theirs, and holds the launch of all
// that they queue. On a CPU device both are the same.
struct Span {
  Phase phase;
  MicroBatchId micro_batch;
  Nanoseconds begin;
  Nanoseconds end;
  StageId stage = kNoStage;
  Nanoseconds host_begin = 0;
  Nanoseconds host_end = 0;
  // On another queue of the slot's GPU than the one that computes: a copy, a sum over replicas. It goes on beside the
  // slot's own work, which counts first.
  bool is_beside = false;
};

// Which queue of which GPU a slot works with.
struct StreamName {
  int gpu = -1;              // CUDA's ordinal; -1: a CPU device, which has no queue
  std::uint64_t handle = 0;  // the cudaStream_t

  bool operator==(const StreamName&) const = default;
};

// The sum of one bucket over the processes of a run, which goes on beside the stages' own work.
struct BucketSpan {
  StageId stage;
  int bucket = 0;
  Nanoseconds begin = 0;      // this process was ready
  Nanoseconds all_there = 0;  // the last process was; from here on it is transfer
  Nanoseconds end = 0;
  std::int64_t bytes = 0;  // that this process sends into it, once; 0: not known
};

// The process that was the last to finish its own work of a step, and how long the first one waited for it.
struct LateProcess {
  int rank = -1;  // -1: there is one process only
  Nanoseconds wait = 0;
};

// A ring for one writer and one reader.
class SpanRing {
 public:
  explicit SpanRing(std::size_t capacity) : slots_(capacity) {}

  void push(const Span& span) {
    const std::uint64_t at = written_.load(std::memory_order_relaxed);
    if (at - read_.load(std::memory_order_acquire) == slots_.size()) {
      drop();
      return;
    }
    slots_[at % slots_.size()] = span;
    written_.store(at + 1, std::memory_order_release);
  }

  // Moves what there is to the end of `into`.
  void take(std::vector<Span>& into);
  void drop() { dropped_.fetch_add(1, std::memory_order_relaxed); }
  // Spans dropped since the last call.
  [[nodiscard]] std::uint64_t take_dropped() { return dropped_.exchange(0, std::memory_order_relaxed); }

 private:
  std::vector<Span> slots_;
  std::atomic<std::uint64_t> written_ = 0;
  std::atomic<std::uint64_t> read_ = 0;
  std::atomic<std::uint64_t> dropped_ = 0;
};

// The spans of one thread.
class Track {
 public:
  static constexpr std::size_t kCapacity = 1 << 13;  // 384 KiB; a stage of 512 micro-batches makes about 4000 spans

  Track(ReplicaId replica, DeviceId device, std::vector<StageId> stages, StreamName stream)
      : replica_(replica), device_(device), stages_(std::move(stages)), stream_(stream), ring_(kCapacity) {}

  void add(const Span& span) { ring_.push(span); }
  [[nodiscard]] ReplicaId replica() const { return replica_; }
  [[nodiscard]] DeviceId device() const { return device_; }
  [[nodiscard]] const std::vector<StageId>& stages() const { return stages_; }  // that the thread runs
  [[nodiscard]] StreamName stream() const { return stream_; }
  [[nodiscard]] SpanRing& ring() { return ring_; }

 private:
  ReplicaId replica_;
  DeviceId device_;
  std::vector<StageId> stages_;
  StreamName stream_;
  SpanRing ring_;
};

// All that was recorded since the last collect().
struct StepSpans {
  struct Slot {
    ReplicaId replica;
    DeviceId device;
    std::vector<StageId> stages;
    std::vector<Span> spans;
    StreamName stream = {};
  };
  // One training step of a worker that shares the slots with others, one after the other
  // (train/serve/virtual_workers.h).
  struct Turn {
    int worker = 0;
    Nanoseconds begin = 0, end = 0;
  };
  std::int64_t step = 0;
  Nanoseconds begin = 0, end = 0;   // of the step
  std::vector<Slot> slots;          // in the order of their tracks
  std::vector<Span> process;        // of the thread that drives the step
  std::vector<BucketSpan> buckets;  // empty in a run of one process
  LateProcess late;
  std::uint64_t dropped = 0;  // not 0: the spans do not tell all
  std::vector<Turn> turns;    // in their order; empty: nobody takes turns
};

class Recorder {
 public:
  explicit Recorder(bool is_on = true) : is_on_(is_on), process_(ReplicaId{-1}, DeviceId{-1}, {}, {}) {}

  // The four below: not while a step runs.
  void switch_on(bool on) { is_on_ = on; }
  // Forgets all slots, and their spans that were not collected: others follow.
  void remove_tracks() { tracks_.clear(); }
  // Of a slot, whose stages are these; it lives until remove_tracks().
  [[nodiscard]] Track& add_track(ReplicaId replica, DeviceId device, std::vector<StageId> stages,
                                 StreamName stream = {});
  // Who is told of each action while it runs; null: nobody. They outlive the steps.
  void set_marks(ActionMarks* marks) { marks_ = marks; }
  [[nodiscard]] ActionMarks* marks() const { return marks_; }

  // What a thread is to write into; null while nothing is recorded.
  [[nodiscard]] Track* open(Track& track) const { return is_on_ ? &track : nullptr; }
  [[nodiscard]] Track* process() { return open(process_); }  // of the thread that drives the step

  // From the thread that drives the step.
  void add_buckets(const std::vector<BucketSpan>& spans, const LateProcess& late) {
    if (!is_on_) return;
    buckets_.insert(buckets_.end(), spans.begin(), spans.end());
    late_ = late;
  }
  // No slots while nothing is recorded.
  [[nodiscard]] StepSpans collect(std::int64_t step, Nanoseconds begin, Nanoseconds end);
  void clear() { static_cast<void>(collect(0, 0, 0)); }

 private:
  bool is_on_;
  ActionMarks* marks_ = nullptr;
  std::deque<Track> tracks_;
  Track process_;
  std::vector<BucketSpan> buckets_;
  LateProcess late_;
};

// Records the life of the object as one span of the calling thread. A null track costs one branch.
class SpanScope {
 public:
  SpanScope(Track* track, Phase phase, MicroBatchId micro_batch = kNoMicroBatch)
      : track_(track), phase_(phase), micro_batch_(micro_batch), begin_(track != nullptr ? now_ns() : 0) {}
  ~SpanScope();
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  Track* track_;
  Phase phase_;
  MicroBatchId micro_batch_;
  Nanoseconds begin_;
};

}  // namespace sluice
