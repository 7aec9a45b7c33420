// stop_before_training: until the first step a signal ends the run at once, whatever it is at: there is nothing to
// save, and reading data, measuring and trial steps may take long. What this start has put into a run directory goes
// with it.
// Not here: the signal itself (stop_signal.h); how the loop stops later (loop.h).
// Threads: one of its own watches; discard() from any, the rest from the one that is going to train.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "core/error.h"

namespace sluice::train {

class StopBeforeTraining {
 public:
  // Ends this process; does not return.
  using Stop = std::function<void(const InterruptedError&)>;

  // Watches for StopSignal until training begins or the thread is asked to stop.
  [[nodiscard]] std::jthread watch(Stop stop);

  // What removes the traces of a run that never began. It must own what it uses: it may run while others unwind.
  void on_discard(std::function<void()> discard);
  // Does so, once and only before training has begun.
  void discard();

  // From here on the loop hears the signal. Does not return when one came before.
  void training_begins();

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::function<void()> discard_;  // guarded by mutex_, like all below
  bool is_watched_ = false;
  bool has_begun_ = false;
};

}  // namespace sluice::train
