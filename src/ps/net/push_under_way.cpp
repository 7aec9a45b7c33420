#include "ps/net/push_under_way.h"

#include <utility>

namespace sluice::ps {

void PushUnderWay::begin(const Compression& compression, const Layout& layout) {
  compression_ = compression;
  compressor_.emplace(compression, layout);
}

void PushUnderWay::begin_incarnation(const Welcome& welcome) {
  sequence_ = 0;
  forget(welcome.last_committed >= key_.sequence);
  forget_ahead();
  if (!run_.empty() && run_ != welcome.run) compressor_.emplace(compression_, welcome.layout);
  run_ = welcome.run;
}

const Frames& PushUnderWay::add_ahead(const PushAhead& ahead, const at::Tensor& elements) {
  return ahead_.emplace_back(Frames{header_of(FromWorker{ahead}), frame_of(elements)});
}

Packed PushUnderWay::pack(PushRecord& record, Tensors tensors) {
  record.sequence = ++sequence_;
  if (tensors.shards.empty()) return {.shards = {}, .statistics = std::move(tensors.statistics)};
  return compressor_->compress(record, std::move(tensors));
}

const Frames& PushUnderWay::make(const PushMade& made, const Packed& packed, Nanoseconds at) {
  key_ = made.record.key();
  made_at_ = at;
  messages_ = std::exchange(ahead_, {});
  return messages_.emplace_back(with_packed(header_of(made), packed));
}

void PushUnderWay::forget(bool was_committed) {
  if (compressor_ && compressor_->is_open()) was_committed ? compressor_->keep() : compressor_->undo();
  messages_.clear();
}

}  // namespace sluice::ps
