// prefetch: makes numbered things ahead of time on worker threads and hands them out in order.
// Not here: what is made (loader.h makes batches). The results do not depend on the number of workers, as long as
// make(number) does not depend on what was made before.
// Threads: next() and the destructor from one thread; make() runs on the workers, several at once (0 workers: in
// next()). Errors: an exception of make(n) leaves next() when number n is due, after all earlier things, and ends the
// sequence: next() must not be called again. DataError when nothing comes within wait_limit.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"

namespace sluice::data {

struct PrefetchOptions {
  int workers = 1;                                // threads; 0: everything is made inside next()
  int depth = 4;                                  // things made or in the making ahead of the consumer, at least 1
  std::chrono::milliseconds wait_limit{300'000};  // longest wait of one next()
};

template <typename T>
class Prefetcher {
 public:
  // Makes thing number 0, 1, .. On a requested stop it may return anything, and should soon.
  using Make = std::function<T(std::int64_t number, const std::stop_token& stop)>;

  // Hands out numbers 0 .. count-1.
  Prefetcher(std::int64_t count, Make make, const PrefetchOptions& options);
  // Waits for the calls of make() that are under way, after telling them to stop.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next thing; empty after the last one.
  std::optional<T> next();

 private:
  struct Slot {
    std::optional<T> thing;
    std::exception_ptr error;
    [[nodiscard]] bool filled() const { return thing.has_value() || error != nullptr; }
  };

  Slot make_slot(std::int64_t number, const std::stop_token& stop) const;
  void work(const std::stop_token& stop);
  Slot wait_for_slot();
  // The place of a number: no two numbers that are out at once share one.
  Slot& slot(std::int64_t number) { return slots_[static_cast<std::size_t>(number % depth())]; }
  [[nodiscard]] std::int64_t depth() const { return std::ssize(slots_); }

  const std::int64_t count_;
  const Make make_;
  const PrefetchOptions options_;
  bool failed_ = false;  // consumer only

  std::mutex mutex_;  // of the members up to threads_
  std::condition_variable_any filled_;
  std::condition_variable_any freed_;
  std::vector<Slot> slots_;
  std::int64_t claimed_ = 0;  // numbers below are made or in the making
  std::int64_t taken_ = 0;    // numbers below were handed out

  std::vector<std::jthread> threads_;
};

template <typename T>
Prefetcher<T>::Prefetcher(std::int64_t count, Make make, const PrefetchOptions& options)
    : count_(count), make_(std::move(make)), options_(options) {
  check(options.workers >= 0 && options.depth >= 1, "prefetching needs workers >= 0 and a depth >= 1");
  slots_.resize(static_cast<std::size_t>(options.depth));
  for (int i = 0; i < options.workers; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
}

template <typename T>
Prefetcher<T>::~Prefetcher() {
  for (auto& thread : threads_) thread.request_stop();
}

template <typename T>
typename Prefetcher<T>::Slot Prefetcher<T>::make_slot(std::int64_t number, const std::stop_token& stop) const {
  Slot made;
  try {
    made.thing = make_(number, stop);
  } catch (...) {
    made.error = std::current_exception();
  }
  return made;
}

template <typename T>
void Prefetcher<T>::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto may_claim = [this] { return claimed_ < count_ && claimed_ < taken_ + depth(); };
  while (freed_.wait(lock, stop, may_claim) && !stop.stop_requested()) {
    const std::int64_t number = claimed_++;
    lock.unlock();
    Slot made = make_slot(number, stop);
    lock.lock();
    slot(number) = std::move(made);
    filled_.notify_one();
  }
}

template <typename T>
typename Prefetcher<T>::Slot Prefetcher<T>::wait_for_slot() {
  std::unique_lock lock(mutex_);
  if (!filled_.wait_for(lock, options_.wait_limit, [this] { return slot(taken_).filled(); })) {
    throw DataError(concat("no batch came within ", options_.wait_limit.count(),
                           " ms: reading the data hangs; check the disk or network behind data.path"));
  }
  Slot result = std::exchange(slot(taken_), Slot{});
  ++taken_;
  freed_.notify_one();
  return result;
}

template <typename T>
std::optional<T> Prefetcher<T>::next() {
  check(!failed_, "next() was called on a prefetcher that has failed");
  if (taken_ == count_) return std::nullopt;  // only this thread writes taken_
  Slot result = threads_.empty() ? make_slot(taken_++, {}) : wait_for_slot();
  if (result.error == nullptr) return std::move(result.thing);
  failed_ = true;
  std::rethrow_exception(result.error);
}

}  // namespace sluice::data
