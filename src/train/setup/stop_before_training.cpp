#include "train/setup/stop_before_training.h"

#include <chrono>
#include <utility>

#include "train/setup/stop_signal.h"

namespace sluice::train {
namespace {

// Polling interval of the flag: a signal handler may do little more than set one.
constexpr std::chrono::milliseconds kLook{20};

}  // namespace

std::jthread StopBeforeTraining::watch(Stop stop) {
  {
    const std::scoped_lock lock(mutex_);
    is_watched_ = true;
  }
  return std::jthread([this, stop = std::move(stop)](const std::stop_token& asked) {
    std::unique_lock lock(mutex_);
    while (has_begun_ || !StopSignal::requested()) {
      if (changed_.wait_for(lock, asked, kLook, [this] { return has_begun_; }) || asked.stop_requested()) return;
    }
    lock.unlock();
    stop(InterruptedError("stopped by ", StopSignal::name(), " before the first step; nothing was trained or saved"));
  });
}

void StopBeforeTraining::on_discard(std::function<void()> discard) {
  const std::scoped_lock lock(mutex_);
  discard_ = std::move(discard);
}

void StopBeforeTraining::discard() {
  const std::scoped_lock lock(mutex_);
  if (has_begun_ || !discard_) return;
  discard_();
  discard_ = {};
}

void StopBeforeTraining::training_begins() {
  std::unique_lock lock(mutex_);
  if (has_begun_) return;
  if (is_watched_ && StopSignal::requested()) changed_.wait(lock, [] { return false; });
  has_begun_ = true;
  changed_.notify_all();
}

}  // namespace sluice::train
