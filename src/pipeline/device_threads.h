// device_threads: one thread per (replica, device), bound to its device, that runs the same job on every slot. What it
// allocates is charged to the device (device/memory.h). Other slots may be assigned between jobs: the threads stay.
// Not here: what the job does (pipeline/executor.h).
// Threads: run() from one thread at a time. A job that waits must end when its `on_failure` has been called.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/ids.h"
#include "pipeline/slot_streams.h"

namespace sluice::pipeline {

// Where one thread of work runs.
struct Slot {
  ReplicaId replica;
  DeviceId device;          // of the replica
  device::Device hardware;  // what that is
  int cpu_threads = 1;      // LibTorch's intra-op threads on a CPU device
};

struct JobControl {
  // From the start of run() until the last slot must be done, without the time in which the whole process was stopped
  // (Ctrl-Z, a debugger), or in which is_excused() held.
  std::chrono::milliseconds timeout;
  std::chrono::milliseconds grace{5000};     // after a failure or timeout, for the others to notice
  std::function<void()> on_failure = [] {};  // wakes jobs that wait; any thread, at most once
  // True while the slots could go on only if somebody outside of this pool did. Brief; runs with the pool's lock.
  std::function<bool()> is_excused = [] { return false; };
  // For a hang: what a slot is doing, and what to make of it all.
  std::function<std::string(int slot)> describe = [](int slot) { return "place " + std::to_string(slot); };
  std::function<std::string()> conclude = [] { return std::string{}; };
};

class DeviceThreads {
 public:
  explicit DeviceThreads(std::vector<Slot> slots = {});
  // Joins the threads, except those that a run() had to abandon.
  ~DeviceThreads();
  DeviceThreads(const DeviceThreads&) = delete;
  DeviceThreads& operator=(const DeviceThreads&) = delete;

  // The slots of the jobs that follow. Threads that are there are kept and bound anew; where there are too few, others
  // are started; where there are more, the rest waits for a later call. Requires: no job runs, no thread was abandoned.
  void assign(std::vector<Slot> slots);

  [[nodiscard]] const std::vector<Slot>& slots() const { return slots_; }
  // Of each slot.
  [[nodiscard]] const std::vector<SlotStreams>& streams() const { return streams_; }

  // Runs job(slot) on every slot's thread and waits for all. The first exception ends the run and is rethrown when
  // all are done. Past the timeout: PeerError that says what each unfinished slot was doing; a thread that does not
  // come back within the grace period is abandoned with everything its job holds, and the pool refuses further runs.
  // Returns the time that counted against the timeout.
  std::chrono::nanoseconds run(std::function<void(int slot)> job, const JobControl& control);
  [[nodiscard]] bool has_abandoned_threads() const;

 private:
  struct Shared;

  [[nodiscard]] std::string describe_hang(const JobControl& control) const;  // with the lock held

  std::vector<Slot> slots_;
  std::vector<SlotStreams> streams_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace sluice::pipeline
