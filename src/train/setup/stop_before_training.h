// stop_before_training: before the first step, a signal ends the run at once and removes what this start wrote to a run
// directory. Threads: one of its own watches; discard() from any, the rest from the training thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "core/error.h"

namespace sluice::train {

class StopBeforeTraining {
 public:
  using Stop = std::function<void(const InterruptedError&)>;

  // Watches for StopSignal until training begins or the thread is asked to stop.
  [[nodiscard]] std::jthread watch(Stop stop);

  // Sets the clean-up. It must own what it uses, because it may run while other threads unwind.
  void on_discard(std::function<void()> discard);
  void discard();

  // From now on the loop handles the signal. Does not return if one came before.
  void training_begins();

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::function<void()> discard_;  // guarded by mutex_, like the members below
  bool is_watched_ = false;
  bool has_begun_ = false;
};

}  // namespace sluice::train
