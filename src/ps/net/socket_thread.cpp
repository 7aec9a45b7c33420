#include "ps/net/socket_thread.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sluice::ps {

SocketThread::~SocketThread() { stop(); }

void SocketThread::stop() {
  if (!thread_.joinable()) return;
  change([this] { must_stop_ = true; });
  thread_.join();
}

void SocketThread::run() {
  try {
    Nanoseconds until = 0;
    while (true) {
      socket_.wait(std::chrono::nanoseconds(std::max<Nanoseconds>(until - now_ns(), 0)), wake_up_.fd());
      wake_up_.take();
      while (auto received = socket_.next()) work_.take(std::move(received->frames));
      const std::scoped_lock lock(mutex_);
      until = work_.turn();
      if (must_stop_) return;
    }
  } catch (...) {
    work_.fail(std::current_exception());
  }
}

}  // namespace sluice::ps
