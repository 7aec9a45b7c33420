// push_under_way: a worker's last push until it is answered. It keeps the messages for repetition, the residual of the
// compression, and the parts of the next push that were sent ahead.
// Threads: one at a time. Errors: those of PushCompressor.
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
  void begin(const Compression& compression, const Layout& layout);
  // Starts counting pushes from 1. The open push may have been committed although its answer was lost. The residual is
  // dropped if it belongs to another run. Requires that the open push is of the incarnation welcome.abandoned.
  void begin_incarnation(const Welcome& welcome);

  [[nodiscard]] const std::string& run() const { return run_; }
  [[nodiscard]] std::int64_t sequence() const { return sequence_; }  // of the last push of this incarnation; 0: none
  // add_ahead() and make() return the message to send.
  [[nodiscard]] const Frames& add_ahead(const PushAhead& ahead, const at::Tensor& elements);
  void forget_ahead() { ahead_.clear(); }  // the next push will not use these elements

  // Numbers the next push and packs it; without shards if these were sent ahead.
  [[nodiscard]] Packed pack(PushRecord& record, Tensors tensors);
  // Opens the push. packed: the lead server's part. at: time for made_at().
  [[nodiscard]] const Frames& make(const PushMade& made, const Packed& packed, Nanoseconds at);

  [[nodiscard]] bool is_open() const { return !messages_.empty(); }
  [[nodiscard]] const std::vector<Frames>& messages() const { return messages_; }
  [[nodiscard]] Nanoseconds made_at() const { return made_at_; }
  void forget(bool was_committed);  // the push was answered, or does not count

  [[nodiscard]] PushCompressor::Named residuals() const {
    return compressor_ ? compressor_->residuals() : PushCompressor::Named{};
  }
  void load_residuals(const PushCompressor::Named& residuals) { compressor_->load(residuals); }

 private:
  Compression compression_;
  std::optional<PushCompressor> compressor_;  // set once the layout is known
  std::string run_;
  std::int64_t sequence_ = 0;
  std::vector<Frames> ahead_;
  std::vector<Frames> messages_;  // empty: no push is open
  PushKey key_;
  Nanoseconds made_at_ = 0;
};

}  // namespace sluice::ps
