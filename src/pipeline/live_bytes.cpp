#include "pipeline/live_bytes.h"

#include <algorithm>

namespace sluice::pipeline {
struct LiveBytes::Ledger {
  struct Entry {
    std::uint64_t bytes = 0;
    int holds = 0;
  };

  std::mutex mutex;
  std::set<const void*> left_out;
  std::map<Key, Entry> entries;
  std::uint64_t current = 0;
  std::uint64_t peak = 0;

  static Hold hold(const std::shared_ptr<Ledger>& ledger, Key key, std::uint64_t bytes) {
    {
      const std::lock_guard lock(ledger->mutex);
      if (ledger->left_out.contains(key.first)) return nullptr;
      Entry& entry = ledger->entries[key];
      if (entry.holds++ == 0) ledger->current += entry.bytes = bytes;
    }
    return {key.first, [ledger, key](const void*) { ledger->release(key); }};
  }

  void release(Key key) {
    const std::lock_guard lock(mutex);
    const auto found = entries.find(key);
    if (--found->second.holds > 0) return;
    current -= found->second.bytes;
    entries.erase(found);
  }
};

LiveBytes::LiveBytes() : ledger_(std::make_shared<Ledger>()) {}

void LiveBytes::leave_out(const at::Tensor& tensor) {
  const std::lock_guard lock(ledger_->mutex);
  if (tensor.defined()) ledger_->left_out.insert(storage_of(tensor));
}

std::uint64_t LiveBytes::current() const {
  const std::lock_guard lock(ledger_->mutex);
  return ledger_->current;
}

void LiveBytes::end_action() {
  const std::lock_guard lock(ledger_->mutex);
  ledger_->peak = std::max(ledger_->peak, ledger_->current);
}

std::uint64_t LiveBytes::peak() const {
  const std::lock_guard lock(ledger_->mutex);
  return ledger_->peak;
}

MicroBatchLiveBytes::MicroBatchLiveBytes(const LiveBytes& stage, const Tensors& inputs) : ledger_(stage.ledger_) {
  for (const at::Tensor& input : inputs) {
    if (input.defined()) inputs_.emplace(storage_of(input), Input{input.const_data_ptr(), input.nbytes()});
  }
}

LiveBytes::Hold MicroBatchLiveBytes::hold(const at::Tensor& tensor) const {
  if (!tensor.defined()) return nullptr;
  const void* const storage = storage_of(tensor);
  if (left_out_.contains(storage)) return nullptr;
  if (const auto input = inputs_.find(storage); input != inputs_.end())
    return LiveBytes::Ledger::hold(ledger_, {storage, input->second.data}, input->second.bytes);
  return LiveBytes::Ledger::hold(ledger_, {storage, nullptr}, tensor.storage().nbytes());
}

void MicroBatchLiveBytes::leave_out(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) left_out_.insert(storage_of(tensor));
}

}  // namespace sluice::pipeline
