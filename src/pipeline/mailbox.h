// mailbox: passes messages between the threads of two stages, one mailbox for each receiving stage and kind of message,
// by micro-batch. Threads: one puts, one takes; close() from any.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/check.h"
#include "core/ids.h"

namespace sluice::pipeline {

template <typename Message>
class Mailbox {
 public:
  // Never blocks: the schedule bounds the number of pending messages. Ignored after close().
  void put(MicroBatchId micro_batch, Message message) {
    {
      const std::scoped_lock lock(mutex_);
      if (closed_) return;
      const bool is_new = messages_.emplace(index(micro_batch), std::move(message)).second;
      check(is_new, "one pending message per micro-batch");
    }
    changed_.notify_one();
  }

  // Blocks until the message arrives; returns nullopt once the mailbox is closed.
  [[nodiscard]] std::optional<Message> take(MicroBatchId micro_batch) {
    std::unique_lock lock(mutex_);
    auto found = messages_.end();
    changed_.wait(lock, [&] { return closed_ || (found = messages_.find(index(micro_batch))) != messages_.end(); });
    if (closed_) return std::nullopt;
    return std::move(messages_.extract(found).mapped());
  }

  void close() {
    {
      const std::scoped_lock lock(mutex_);
      closed_ = true;
      messages_.clear();
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<int, Message> messages_;
  bool closed_ = false;
};

}  // namespace sluice::pipeline
