// push_under_way: the push that a worker has made and nobody has answered yet: its messages, which may have to be sent
// again, what compression has left out of it, and what has gone ahead of the next one. Not here: sockets
// (network_link.h). Threads: one at a time. Errors: those of PushCompressor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/clock.h"
#include "ps/net/frames.h"
#include "ps/net/messages.h"
#include "ps/push_compressor.h"

namespace sluice::ps {

class PushUnderWay {
 public:
  // Once, with the layout; before any push.
  void begin(const Compression& compression, const Layout& layout);
  // Counts from 1 in each incarnation of a worker. The push that is open may have been committed, with the answer lost.
  // What has not been sent is forgotten where it is of another run. Requires: that push is of the incarnation that
  // welcome.abandoned.
  void begin_incarnation(const Welcome& welcome);

  [[nodiscard]] const std::string& run() const { return run_; }  // of this incarnation
  // Of the last push of this incarnation; 0: none.
  [[nodiscard]] std::int64_t sequence() const { return sequence_; }
  // Some of the next push; the message to send.
  [[nodiscard]] const Frames& add_ahead(const PushAhead& ahead, const at::Tensor& elements);
  // The next push will not be made of that.
  void forget_ahead() { ahead_.clear(); }

  // What travels of the next push, which gets its sequence; without shards where these have gone ahead.
  [[nodiscard]] Packed pack(PushRecord& record, Tensors tensors);
  // It is under way; the message to send. packed: what of it goes to the lead server. at: the time, for made_at().
  [[nodiscard]] const Frames& make(const PushMade& made, const Packed& packed, Nanoseconds at);

  [[nodiscard]] bool is_open() const { return !messages_.empty(); }
  [[nodiscard]] const std::vector<Frames>& messages() const { return messages_; }
  [[nodiscard]] Nanoseconds made_at() const { return made_at_; }
  // It was answered, or counts for nothing.
  void forget(bool was_committed);

  [[nodiscard]] PushCompressor::Named residuals() const {
    return compressor_ ? compressor_->residuals() : PushCompressor::Named{};
  }
  void load_residuals(const PushCompressor::Named& residuals) { compressor_->load(residuals); }

 private:
  Compression compression_;
  std::optional<PushCompressor> compressor_;  // since the layout is known
  std::string run_;
  std::int64_t sequence_ = 0;
  std::vector<Frames> ahead_;     // as they have been sent
  std::vector<Frames> messages_;  // empty: no push is under way
  PushKey key_;                   // of it, or of the last one
  Nanoseconds made_at_ = 0;
};

}  // namespace sluice::ps
