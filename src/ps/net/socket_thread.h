// socket_thread: the thread of a worker's connection, which alone sends and receives. The owner's functions define its
// work. mutex() guards shared data, and change() wakes the thread. Messages leave in order. Few of them are queued in
// the socket itself, so obsolete ones can be dropped.
// Threads: change() and mutex() from any. Errors: `fail` receives those of the socket and of the owner's functions.
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

[[nodiscard]] constexpr FrameSocket::Limits with_few_unsent(FrameSocket::Limits limits) {
  limits.unsent = 4;
  return limits;
}

class SocketThread {
 public:
  struct Work {  // called by the thread
    std::function<void(Frames message)> take;
    std::function<Nanoseconds()> turn;  // under the lock, after each wait; returns when to end the next wait, by now()
    std::function<void(std::exception_ptr)> fail;  // the thread has ended
  };

  // socket: connected; only this thread uses it after start().
  SocketThread(FrameSocket& socket, Work work) : socket_(socket), work_(std::move(work)) {}
  ~SocketThread();

  void start() {
    thread_ = std::thread([this] { run(); });
  }
  // Stops the thread after one more turn. Call it before the data of `work` is destroyed.
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

  // --- Under the lock

  [[nodiscard]] Nanoseconds now() const { return clock_.now(); }
  void send(const Frames& message) { waiting_.push_back(message); }
  // Sends the message only if that is possible at once. For repeated messages, from the thread itself.
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
