#include "pipeline/device_threads.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/own_time.h"
#include "core/text.h"
#include "device/cpu_threads.h"
#include "device/memory.h"

namespace sluice::pipeline {

struct DeviceThreads::Shared {
  struct Seat {
    Slot where;
    std::optional<SlotStreams> streams;
    std::int64_t version = 0;  // number of assignments so far
    std::int64_t done = 0;     // generation of the last job it has finished
  };

  std::mutex mutex;
  std::condition_variable job_given;
  std::condition_variable slot_done;
  std::shared_ptr<const std::function<void(int)>> job;
  std::function<void()> on_failure;
  std::int64_t generation = 0;  // number of jobs so far
  std::deque<Seat> seats;       // [thread]
  int active = 0;               // the first `active` threads have a slot
  std::exception_ptr first_failure;
  bool stopping = false;
  bool abandoned = false;
  std::vector<std::thread> threads;

  void work(int thread);
  // Runs jobs until the thread is bound to another slot. Returns false when the pool ends.
  [[nodiscard]] bool work_at(int thread, const Seat& seat);
  void fail(std::exception_ptr failure);
  [[nodiscard]] bool all_done() const {
    return std::all_of(seats.begin(), seats.begin() + active,
                       [&](const Seat& seat) { return seat.done == generation; });
  }
};

void DeviceThreads::Shared::fail(std::exception_ptr failure) {
  std::function<void()> wake;
  {
    const std::scoped_lock lock(mutex);
    if (first_failure) return;
    first_failure = std::move(failure);
    wake = on_failure;
  }
  if (wake) wake();
}

void DeviceThreads::Shared::work(int thread) {
  for (;;) {
    const Seat seat = [&] {
      const std::scoped_lock lock(mutex);
      return seats[thread];
    }();
    if (!work_at(thread, seat)) return;
  }
}

bool DeviceThreads::Shared::work_at(int thread, const Seat& seat) {
  device::use_cpu_threads(seat.where.cpu_threads);
  const device::MemoryScope charge(seat.where.hardware, device::MemoryKind::kActivations);
  const device::StreamGuard guard(seat.streams->compute());
  for (;;) {
    std::shared_ptr<const std::function<void(int)>> current;
    std::int64_t number = 0;
    {
      std::unique_lock lock(mutex);
      const auto is_rebound = [&] { return seats[thread].version != seat.version; };
      const auto has_job = [&] { return thread < active && seats[thread].done < generation; };
      job_given.wait(lock, [&] { return stopping || is_rebound() || has_job(); });
      if (stopping) return false;
      if (is_rebound()) return true;
      current = job;
      number = generation;
    }
    try {
      (*current)(thread);
    } catch (...) {
      fail(std::current_exception());
    }
    current.reset();
    const std::scoped_lock lock(mutex);
    seats[thread].done = number;
    slot_done.notify_all();
  }
}

DeviceThreads::DeviceThreads(std::vector<Slot> slots) : shared_(std::make_shared<Shared>()) {
  assign(std::move(slots));
}

void DeviceThreads::assign(std::vector<Slot> slots) {
  const std::scoped_lock lock(shared_->mutex);
  check(!shared_->abandoned, "no abandoned thread in the pool that gets new slots");
  slots_ = std::move(slots);
  streams_.clear();
  shared_->active = static_cast<int>(slots_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (i == shared_->seats.size()) shared_->seats.emplace_back();
    Shared::Seat& seat = shared_->seats[i];
    if (!seat.streams || seat.where.hardware != slots_[i].hardware) seat.streams.emplace(slots_[i].hardware);
    seat.where = slots_[i];
    ++seat.version;
    streams_.push_back(*seat.streams);
  }
  for (Shared::Seat& seat : shared_->seats) seat.done = shared_->generation;
  while (shared_->threads.size() < slots_.size()) {
    const int thread = static_cast<int>(shared_->threads.size());
    shared_->threads.emplace_back([shared = shared_, thread] { shared->work(thread); });
  }
  shared_->job_given.notify_all();
}

DeviceThreads::~DeviceThreads() {
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->job_given.notify_all();
  for (std::thread& thread : shared_->threads) {
    if (shared_->abandoned) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

std::chrono::nanoseconds DeviceThreads::run(std::function<void(int)> job, const JobControl& control) {
  std::unique_lock lock(shared_->mutex);
  check(!shared_->abandoned, "no abandoned thread in the pool that runs a job");
  shared_->job = std::make_shared<const std::function<void(int)>>(std::move(job));
  shared_->on_failure = control.on_failure;
  shared_->first_failure = nullptr;
  ++shared_->generation;
  shared_->job_given.notify_all();

  const auto finished = [&] { return shared_->all_done(); };
  const auto finished_or_failed = [&] { return finished() || shared_->first_failure; };
  OwnTime time(2 * kShortWait);  // wait_own_time() polls every kShortWait
  const auto is_excused = [&] {
    const bool is_excused_now = control.is_excused();
    is_excused_now ? time.leave_out() : time.pass();
    return is_excused_now;
  };
  if (!wait_own_time(shared_->slot_done, lock, control.timeout, finished_or_failed, is_excused)) {
    const auto hung = std::make_exception_ptr(PeerError(describe_hang(control)));  // requires the lock
    lock.unlock();
    shared_->fail(hung);  // keeps the first failure: a slot may have failed meanwhile
    lock.lock();
  }
  if (!wait_own_time(shared_->slot_done, lock, control.grace, finished)) shared_->abandoned = true;
  shared_->job.reset();
  shared_->on_failure = nullptr;
  if (shared_->first_failure) std::rethrow_exception(shared_->first_failure);
  return time.pass();
}

bool DeviceThreads::has_abandoned_threads() const {
  const std::scoped_lock lock(shared_->mutex);
  return shared_->abandoned;
}

std::string DeviceThreads::describe_hang(const JobControl& control) const {
  std::vector<std::string> stuck;
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
    if (shared_->seats[i].done == shared_->generation) continue;
    stuck.push_back(concat(control.describe(i), " on ", device::to_string(slots_[i].hardware)));
  }
  const std::string conclusion = control.conclude();
  return concat("the step did not end within ", seconds_text(control.timeout), ": ", join(stuck, "; "),
                conclusion.empty() ? "" : concat("; ", conclusion),
                "; if the step is only slow, raise train.step_timeout_s");
}

}  // namespace sluice::pipeline
