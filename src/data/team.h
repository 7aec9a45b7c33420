// team: threads that take part in each other's work. One that has much to do in pieces offers them; those that have
// nothing else to do help. So a batch of pictures is decoded by all threads of a loader, not by the one that makes it.
// Not here: the threads (prefetch.h). Threads: any, any number at once. Errors: run() throws what the first piece in
// order has thrown; pieces behind one that failed may be left out.
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
  // Does piece(i) for 0 <= i < pieces, here and in whoever helps; returns when all are done, so that what `piece`
  // refers to may live here. A piece that hangs is waited for without end.
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
    if (work->error) std::rethrow_exception(work->error);
  }

  // Whether there are pieces that nobody does yet.
  [[nodiscard]] bool needs_help() const {
    const std::scoped_lock lock(mutex_);
    return !open_.empty();
  }

  // Takes part in the work that was offered first, until all of its pieces are taken.
  void help() {
    std::shared_ptr<Work> work;
    {
      const std::scoped_lock lock(mutex_);
      if (open_.empty()) return;
      work = open_.front();
    }
    take_part(work);
  }

  // Called when there is work to help with, by the thread that offers it; to be set before any is.
  void on_work(std::function<void()> call) { on_work_ = std::move(call); }

 private:
  struct Work {
    Work(std::int64_t count, std::function<void(std::int64_t)> one) : pieces(count), piece(std::move(one)) {}

    const std::int64_t pieces;
    const std::function<void(std::int64_t)> piece;
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> has_failed{false};
    std::mutex mutex;  // of all below
    std::condition_variable all_done;
    std::int64_t done = 0;
    std::int64_t first_failed = 0;
    std::exception_ptr error;
  };

  void take_part(const std::shared_ptr<Work>& work) {
    std::int64_t done = 0;
    for (std::int64_t i = work->next++; i < work->pieces; i = work->next++, ++done) do_piece(*work, i);
    {
      const std::scoped_lock lock(mutex_);  // nobody needs to look at it any more
      std::erase(open_, work);
    }
    const std::scoped_lock lock(work->mutex);
    work->done += done;
    if (work->done == work->pieces) work->all_done.notify_all();
  }

  // Pieces are taken in order: those before one that has failed are done or under way.
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
  std::vector<std::shared_ptr<Work>> open_;  // those of which pieces are left, the first offered first
};

}  // namespace sluice::data
