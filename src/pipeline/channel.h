// channel: a first-in first-out queue between two threads of work, one per (source, destination, kind of message).
// Threads: one sender, one receiver; close() from any thread. No busy waiting.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace sluice::pipeline {

template <typename Message>
class Channel {
 public:
  // Never blocks: the schedule bounds how many messages can be under way. Ignored after close().
  void push(Message message) {
    {
      const std::scoped_lock lock(mutex_);
      if (closed_) return;
      queue_.push_back(std::move(message));
    }
    changed_.notify_one();
  }

  // Blocks until there is a message; nothing once the channel is closed.
  [[nodiscard]] std::optional<Message> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !queue_.empty(); });
    if (closed_) return std::nullopt;
    Message message = std::move(queue_.front());
    queue_.pop_front();
    return message;
  }

  // Wakes the receiver. Messages under way are dropped.
  void close() {
    {
      const std::scoped_lock lock(mutex_);
      closed_ = true;
      queue_.clear();
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> queue_;
  bool closed_ = false;
};

}  // namespace sluice::pipeline
