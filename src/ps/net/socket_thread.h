// socket_thread: the thread of a connection that a worker has made: it alone sends and receives, and it sends the
// heartbeats. What it does is its owner's; what both use is guarded by the mutex here, and change() has the thread look
// at it at once. Messages leave in their order, as fast as the other side takes them: few wait in the socket itself, so
// that what is not worth sending any more can be dropped. Threads: change() and mutex() from any. Errors: those of the
// socket and of the owner's functions, by `fail`.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/wake_up.h"
#include "core/clock.h"
#include "core/own_time.h"
#include "ps/net/frame_socket.h"

namespace sluice::ps {

// Of the socket of such a thread.
[[nodiscard]] constexpr FrameSocket::Limits with_few_unsent(FrameSocket::Limits limits) {
  limits.unsent = 4;
  return limits;
}

class SocketThread {
 public:
  // All are called by the thread.
  struct Work {
    std::function<void(Frames message)> take;
    std::function<Nanoseconds()> turn;  // under the lock, after each wait: until when, by now(), to wait next
    std::function<void(std::exception_ptr)> fail;  // the thread has ended
  };

  // Connected, and this thread's from start() on.
  SocketThread(FrameSocket& socket, Work work) : socket_(socket), work_(std::move(work)) {}
  ~SocketThread();
  SocketThread(const SocketThread&) = delete;
  SocketThread& operator=(const SocketThread&) = delete;

  void start() {
    thread_ = std::thread([this] { run(); });
  }
  // After one more turn. Before what its work uses is gone.
  void stop();

  [[nodiscard]] std::mutex& mutex() { return mutex_; }
  template <typename Change>
  void change(const Change& change) {
    {
      const std::scoped_lock lock(mutex_);
      change();
    }
    wake_up_.give();
  }

  // --- Under the lock.

  [[nodiscard]] Nanoseconds now() const { return clock_.now(); }
  // Leaves as soon as it can, after all that waits.
  void send(const Frames& message) { waiting_.push_back(message); }
  // Only if it can leave at once; from the thread itself. What it says is said again and again.
  void send_now(const Frames& message);
  [[nodiscard]] bool has_sent_all() const { return waiting_.empty(); }
  void drop_unsent() { waiting_.clear(); }

 private:
  void run();
  void send_waiting();

  FrameSocket& socket_;
  Work work_;
  comm::WakeUp wake_up_;
  std::mutex mutex_;
  // Guarded by mutex_.
  OwnClock clock_;
  std::deque<Frames> waiting_;
  bool must_stop_ = false;

  std::thread thread_;
};

}  // namespace sluice::ps
