// device_threads: one thread per slot (replica, device), bound to its device; all threads run the same job. Memory that
// a thread allocates is charged to its device (device/memory.h).
// Threads: call run() from one thread at a time. A job that waits must return once `on_failure` was called.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/ids.h"
#include "pipeline/slot_streams.h"

namespace sluice::pipeline {

struct Slot {
  ReplicaId replica;
  DeviceId device;  // index within the replica
  device::Device hardware;
  int cpu_threads = 1;  // LibTorch's intra-op threads on a CPU device
};

struct JobControl {
  // Limit for the whole run(), without time in which the process was stopped (Ctrl-Z) or is_excused() returned true.
  std::chrono::milliseconds timeout;
  std::chrono::milliseconds grace{5000};     // time for the other slots to return after a failure or timeout
  std::function<void()> on_failure = [] {};  // wakes jobs that wait; called from any thread, at most once
  // True while only something outside of this pool can continue the run. Must be fast: the pool's lock is held.
  std::function<bool()> is_excused = [] { return false; };
  std::function<std::string(int slot)> describe = [](int slot) { return "slot " + std::to_string(slot); };
  std::function<std::string()> conclude = [] { return std::string{}; };
};

class DeviceThreads {
 public:
  explicit DeviceThreads(std::vector<Slot> slots = {});
  ~DeviceThreads();
  DeviceThreads(const DeviceThreads&) = delete;
  DeviceThreads& operator=(const DeviceThreads&) = delete;

  // Sets the slots of the following jobs and keeps the threads. Requires: no job runs, no thread was abandoned.
  void assign(std::vector<Slot> slots);

  [[nodiscard]] const std::vector<Slot>& slots() const { return slots_; }
  // [slot]
  [[nodiscard]] const std::vector<SlotStreams>& streams() const { return streams_; }

  // Runs job(slot) on every slot's thread and waits for all. Rethrows the first exception when all slots are done.
  // After the timeout, throws a PeerError that describes each unfinished slot. Abandons a thread that does not return
  // within the grace period; the pool then refuses further runs. Returns the time that counted against the timeout.
  std::chrono::nanoseconds run(std::function<void(int slot)> job, const JobControl& control);
  [[nodiscard]] bool has_abandoned_threads() const;

 private:
  struct Shared;

  [[nodiscard]] std::string describe_hang(const JobControl& control) const;  // requires: the lock is held

  std::vector<Slot> slots_;
  std::vector<SlotStreams> streams_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace sluice::pipeline
