// team: a thread offers work in pieces, and idle threads help, so all threads of a loader decode a batch together.
// Threads: any. Errors: run() throws the exception of the first failed piece in order; later pieces may be skipped.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace sluice::data {

class Team {
 public:
  // Runs piece(i) for 0 <= i < pieces on this and on helping threads; waits for all of them without a time limit.
  void run(std::int64_t pieces, std::function<void(std::int64_t)> piece) {
    const auto work = std::make_shared<Work>(pieces, std::move(piece));
    {
      const std::scoped_lock lock(mutex_);
      open_.push_back(work);
    }
    if (on_work_ && pieces > 1) on_work_();
    take_part(work);
    std::unique_lock lock(work->mutex);
    work->all_done.wait(lock, [&] { return work->done == pieces; });
    if (work->error)
      std::rethrow_exception(std::exchange(work->error, nullptr));  // no helper destroys it during its use
  }

  [[nodiscard]] bool needs_help() const {
    const std::scoped_lock lock(mutex_);
    return !open_.empty();
  }

  void help() {
    std::shared_ptr<Work> work;
    {
      const std::scoped_lock lock(mutex_);
      if (open_.empty()) return;
      work = open_.front();
    }
    take_part(work);
  }

  // Sets a function that an offering thread calls when it has work. Call this before any work is offered.
  void on_work(std::function<void()> call) { on_work_ = std::move(call); }

 private:
  struct Work {
    Work(std::int64_t count, std::function<void(std::int64_t)> one) : pieces(count), piece(std::move(one)) {}

    const std::int64_t pieces;
    const std::function<void(std::int64_t)> piece;
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> has_failed{false};
    std::mutex mutex;  // protects all members below
    std::condition_variable all_done;
    std::int64_t done = 0;
    std::int64_t first_failed = 0;
    std::exception_ptr error;
  };

  void take_part(const std::shared_ptr<Work>& work) {
    std::int64_t done = 0;
    for (std::int64_t i = work->next++; i < work->pieces; i = work->next++, ++done) do_piece(*work, i);
    {
      const std::scoped_lock lock(mutex_);  // all pieces are taken
      std::erase(open_, work);
    }
    const std::scoped_lock lock(work->mutex);
    work->done += done;
    if (work->done == work->pieces) work->all_done.notify_all();
  }

  // Pieces are taken in order, so those before a failed one are done or running.
  static void do_piece(Work& work, std::int64_t i) {
    if (work.has_failed) return;
    try {
      work.piece(i);
    } catch (...) {
      const std::scoped_lock lock(work.mutex);
      if (!work.error || i < work.first_failed) {
        work.error = std::current_exception();
        work.first_failed = i;
      }
      work.has_failed = true;
    }
  }

  std::function<void()> on_work_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Work>> open_;  // work with untaken pieces, oldest first
};

}  // namespace sluice::data
