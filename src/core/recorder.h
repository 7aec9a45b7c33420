// recorder: records what each thread of a run does as time spans. A thread writes into its own ring buffer; the thread
// that drives the step collects the spans after the step, and profiler/breakdown.h adds them up.
// Threads: each Track has one writer and one reader at a time, concurrently and without locks. A span added before a
// collect() call is in its result. A full ring drops the newest spans and counts them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/ids.h"

namespace sluice {

class ActionMarks;

enum class Phase : std::uint8_t {
  kLoadWait,
  kHostToDevice,
  kForward,
  kLoss,      // includes the start of its gradient
  kBackward,  // whole micro-batch; only the input gradient if weight gradients are deferred
  kWeightGradient,
  kSend,
  kReceiveWait,
  kReceive,    // copies a tensor from another device
  kAllReduce,  // sums gradients over replicas
  kOptimizer,
  kEvaluation,
  kCheckpoint,
};

inline constexpr MicroBatchId kNoMicroBatch{-1};
inline constexpr StageId kNoStage{-1};

// One span of a device's time. On a GPU, host_begin and host_end are the time of the calls, which run ahead of it. On a
// CPU device both intervals are the same.
struct Span {
  Phase phase;
  MicroBatchId micro_batch;
  Nanoseconds begin;
  Nanoseconds end;
  StageId stage = kNoStage;
  Nanoseconds host_begin = 0;
  Nanoseconds host_end = 0;
  // On a GPU queue other than the slot's compute queue: a copy or an all-reduce. The slot's own work takes precedence
  // in the breakdown.
  bool is_beside = false;
};

struct StreamName {
  int gpu = -1;  // CUDA ordinal; -1: a CPU device, which has no queue
  std::uint64_t handle = 0;

  bool operator==(const StreamName&) const = default;
};

// All-reduce of one bucket over the processes of a run, which overlaps the stages' own work.
struct BucketSpan {
  StageId stage;
  int bucket = 0;
  Nanoseconds begin = 0;      // this process is ready
  Nanoseconds all_there = 0;  // the last process is ready; the transfer starts
  Nanoseconds end = 0;
  std::int64_t bytes = 0;  // bytes that this process sends; 0: unknown
};

// The process that finished its own work of a step last, and how long the first process waited for it.
struct LateProcess {
  int rank = -1;  // -1: there is only one process
  Nanoseconds wait = 0;
};

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

  void take(std::vector<Span>& into);
  void drop() { dropped_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t take_dropped() { return dropped_.exchange(0, std::memory_order_relaxed); }

 private:
  std::vector<Span> slots_;
  std::atomic<std::uint64_t> written_ = 0;
  std::atomic<std::uint64_t> read_ = 0;
  std::atomic<std::uint64_t> dropped_ = 0;
};

class Track {
 public:
  static constexpr std::size_t kCapacity = 1 << 13;  // 384 KiB; 512 micro-batches make about 4000 spans

  Track(ReplicaId replica, DeviceId device, std::vector<StageId> stages, StreamName stream)
      : replica_(replica), device_(device), stages_(std::move(stages)), stream_(stream), ring_(kCapacity) {}

  void add(const Span& span) { ring_.push(span); }
  [[nodiscard]] ReplicaId replica() const { return replica_; }
  [[nodiscard]] DeviceId device() const { return device_; }
  [[nodiscard]] const std::vector<StageId>& stages() const { return stages_; }
  [[nodiscard]] StreamName stream() const { return stream_; }
  [[nodiscard]] SpanRing& ring() { return ring_; }

 private:
  ReplicaId replica_;
  DeviceId device_;
  std::vector<StageId> stages_;
  StreamName stream_;
  SpanRing ring_;
};

struct StepSpans {
  struct Slot {
    ReplicaId replica;
    DeviceId device;
    std::vector<StageId> stages;
    std::vector<Span> spans;
    StreamName stream = {};
  };
  // One training step of a worker that takes turns with others on the same slots (train/serve/virtual_workers.h).
  struct Turn {
    int worker = 0;
    Nanoseconds begin = 0, end = 0;
  };
  std::int64_t step = 0;
  Nanoseconds begin = 0, end = 0;
  std::vector<Slot> slots;          // in the order of their tracks
  std::vector<Span> process;        // spans of the thread that drives the step
  std::vector<BucketSpan> buckets;  // empty if the run has one process
  LateProcess late;
  std::uint64_t dropped = 0;  // if not 0, spans are missing
  std::vector<Turn> turns;    // in time order; empty if workers take no turns
};

class Recorder {
 public:
  explicit Recorder(bool is_on = true) : is_on_(is_on), process_(ReplicaId{-1}, DeviceId{-1}, {}, {}) {}

  // Do not call the next four functions while a step runs.
  void switch_on(bool on) { is_on_ = on; }
  void remove_tracks() { tracks_.clear(); }
  // Adds a track for a slot that runs these stages. It is valid until remove_tracks().
  [[nodiscard]] Track& add_track(ReplicaId replica, DeviceId device, std::vector<StageId> stages,
                                 StreamName stream = {});
  void set_marks(ActionMarks* marks) { marks_ = marks; }
  [[nodiscard]] ActionMarks* marks() const { return marks_; }

  [[nodiscard]] Track* open(Track& track) const { return is_on_ ? &track : nullptr; }
  [[nodiscard]] Track* process() { return open(process_); }  // track of the thread that drives the step

  void add_buckets(const std::vector<BucketSpan>& spans, const LateProcess& late) {
    if (!is_on_) return;
    buckets_.insert(buckets_.end(), spans.begin(), spans.end());
    late_ = late;
  }
  // The result has no slots if recording is off.
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

// Records the object's lifetime as one span of the calling thread. A null track costs one branch.
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
