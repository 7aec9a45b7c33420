#include "ps/net/socket_thread.h"

#include <chrono>

namespace sluice::ps {

SocketThread::~SocketThread() { stop(); }

void SocketThread::stop() {
  if (!thread_.joinable()) return;
  change([this] { must_stop_ = true; });
  thread_.join();
}

void SocketThread::send_now(const Frames& message) {
  if (waiting_.empty()) socket_.send({}, message);
}

void SocketThread::send_waiting() {
  while (!waiting_.empty() && socket_.send({}, waiting_.front())) waiting_.pop_front();
}

void SocketThread::run() {
  try {
    std::chrono::nanoseconds limit{0};
    bool is_full = false;
    while (true) {
      if (is_full)
        socket_.wait_to_send(limit, wake_up_.fd());
      else
        socket_.wait(limit, wake_up_.fd());
      wake_up_.take();
      while (auto received = socket_.next()) work_.take(std::move(received->frames));
      const std::scoped_lock lock(mutex_);
      send_waiting();
      limit = std::chrono::nanoseconds(work_.turn() - now());
      is_full = !waiting_.empty();
      if (must_stop_) return;
    }
  } catch (...) {
    work_.fail(std::current_exception());
  }
}

}  // namespace sluice::ps
