// prefetch: makes numbered items ahead of time on its own threads and returns them in order.
// Threads: next() and the destructor from one thread. make() runs on the prefetcher's threads, several at once, or in
// next() with 0 threads. Errors: an exception of make(n) leaves next() when n is due, after all earlier items;
// DataError if nothing comes within wait_limit. Either ends the sequence: next() must not be called again.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/error.h"
#include "core/own_time.h"
#include "data/team.h"

namespace sluice::data {

struct PrefetchOptions {
  int threads = 1;  // 0: items are made inside next()
  int depth = 4;    // items made or in the making ahead of the consumer, at least 1
  // Longest wait of next() and of the destructor, not counting time in which the whole process was stopped.
  std::chrono::milliseconds wait_limit{300'000};
  // Lets idle threads help a running make() before they begin a later item. null: threads do not help each other.
  std::shared_ptr<Team> team = nullptr;
};

template <typename T>
class Prefetcher {
 public:
  // Makes item `number`, counted from 0. If a stop is requested, it should return soon, with any value.
  using Make = std::function<T(std::int64_t number, const std::stop_token& stop)>;

  Prefetcher(std::int64_t count, Make make, const PrefetchOptions& options);
  // Requests running make() calls to stop and waits for them. Calls that hang are abandoned, so everything that `make`
  // uses must be owned by it or live as long as the process.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  std::optional<T> next();

 private:
  struct Slot {
    std::optional<T> thing;
    std::exception_ptr error;
    [[nodiscard]] bool filled() const { return thing.has_value() || error != nullptr; }
  };
  struct Shared;

  static PrefetchOptions checked(const PrefetchOptions& options);
  void end_threads();
  Slot wait_for_slot();

  const PrefetchOptions options_;
  const std::shared_ptr<Shared> shared_;  // shared with the threads; outlives the prefetcher if a thread hangs
  std::vector<std::thread> threads_;
  bool failed_ = false;
  bool hangs_ = false;
};

template <typename T>
struct Prefetcher<T>::Shared {
  Shared(std::int64_t count, Make make, const PrefetchOptions& options)
      : count(count), make(std::move(make)), team(options.team), slots(static_cast<std::size_t>(options.depth)) {}

  Slot make_slot(std::int64_t number, const std::stop_token& token) const;
  void work();
  // The slot of a number; two numbers that are in progress never share one.
  Slot& slot(std::int64_t number) { return slots[static_cast<std::size_t>(number % depth())]; }
  [[nodiscard]] std::int64_t depth() const { return std::ssize(slots); }

  const std::int64_t count;
  const Make make;
  const std::shared_ptr<Team> team;
  std::stop_source stop;

  std::mutex mutex;  // protects all members below
  std::condition_variable_any filled;
  std::condition_variable_any freed;
  std::condition_variable_any ended_one;
  std::vector<Slot> slots;
  std::int64_t claimed = 0;  // lower numbers are made or in the making
  std::int64_t taken = 0;    // lower numbers were returned; written only by the consumer
  std::size_t ended = 0;
};

template <typename T>
Prefetcher<T>::Prefetcher(std::int64_t count, Make make, const PrefetchOptions& options)
    : options_(checked(options)), shared_(std::make_shared<Shared>(count, std::move(make), options)) {
  if (options.team) {
    options.team->on_work([shared = std::weak_ptr(shared_)] {
      const auto own = shared.lock();
      if (!own) return;
      const std::scoped_lock lock(own->mutex);  // no thread is between its check and its wait
      own->freed.notify_all();
    });
  }
  try {
    for (int i = 0; i < options.threads; ++i) threads_.emplace_back([shared = shared_] { shared->work(); });
  } catch (...) {  // the system has no more threads
    end_threads();
    throw;
  }
}

template <typename T>
Prefetcher<T>::~Prefetcher() {
  end_threads();
}

template <typename T>
PrefetchOptions Prefetcher<T>::checked(const PrefetchOptions& options) {
  check(options.threads >= 0 && options.depth >= 1, "prefetching with at least 0 threads and a depth of at least 1");
  return options;
}

template <typename T>
void Prefetcher<T>::end_threads() {
  shared_->stop.request_stop();
  bool all_ended = false;
  {
    std::unique_lock lock(shared_->mutex);
    const auto limit = hangs_ ? std::chrono::milliseconds{0} : options_.wait_limit;
    all_ended = wait_own_time(shared_->ended_one, lock, limit, [this] { return shared_->ended == threads_.size(); });
  }
  for (std::thread& thread : threads_) {
    if (all_ended) {
      thread.join();
    } else {
      thread.detach();
    }
  }
}

template <typename T>
typename Prefetcher<T>::Slot Prefetcher<T>::Shared::make_slot(std::int64_t number, const std::stop_token& token) const {
  Slot made;
  try {
    made.thing = make(number, token);
  } catch (...) {
    made.error = std::current_exception();
  }
  return made;
}

template <typename T>
void Prefetcher<T>::Shared::work() {
  const std::stop_token token = stop.get_token();
  std::unique_lock lock(mutex);
  const auto may_claim = [this] { return claimed < count && claimed < taken + depth(); };
  const auto may_help = [this] { return team && team->needs_help(); };
  while (freed.wait(lock, token, [&] { return may_help() || may_claim(); }) && !token.stop_requested()) {
    if (may_help()) {
      lock.unlock();
      team->help();
      lock.lock();
      continue;
    }
    const std::int64_t number = claimed++;
    lock.unlock();
    Slot made = make_slot(number, token);
    lock.lock();
    slot(number) = std::move(made);
    filled.notify_one();
  }
  ++ended;
  ended_one.notify_one();
}

template <typename T>
typename Prefetcher<T>::Slot Prefetcher<T>::wait_for_slot() {
  std::unique_lock lock(shared_->mutex);
  Slot& due = shared_->slot(shared_->taken);
  if (!wait_own_time(shared_->filled, lock, options_.wait_limit, [&] { return due.filled(); })) {
    failed_ = true;
    hangs_ = true;
    throw DataError("no batch came within ", options_.wait_limit.count(),
                    " ms: reading the data hangs; check the disk or network behind data.path");
  }
  Slot result = std::exchange(due, Slot{});
  ++shared_->taken;
  shared_->freed.notify_one();
  return result;
}

template <typename T>
std::optional<T> Prefetcher<T>::next() {
  check(!failed_, "no call of next() after the prefetcher has failed");
  if (shared_->taken == shared_->count) return std::nullopt;
  Slot result = threads_.empty() ? shared_->make_slot(shared_->taken++, {}) : wait_for_slot();
  if (result.error == nullptr) return std::move(result.thing);
  failed_ = true;
  std::rethrow_exception(result.error);
}

}  // namespace sluice::data
