// ahead_link: assembles pushes that were sent ahead span by span, as a server does.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ps/server_link.h"

namespace sluice::ps::test {

class AheadLink final : public ServerLink {
 public:
  explicit AheadLink(std::shared_ptr<ServerLink> link) : link_(std::move(link)) {}

  [[nodiscard]] const Layout& layout() const override { return link_->layout(); }
  [[nodiscard]] std::int64_t pull(Tensors& into) override {
    const std::scoped_lock lock(mutex_);
    shards_.clear();
    for (const Shard& shard : layout().shards)
      shards_.push_back(at::full({shard.elements}, std::numeric_limits<double>::quiet_NaN(), layout().dtype));
    elements_ = 0;
    return link_->pull(into);
  }
  [[nodiscard]] bool takes_spans() const override { return true; }
  void push_ahead(std::size_t shard, std::vector<ShardSpan> spans, const at::Tensor& elements) override {
    const std::scoped_lock lock(mutex_);
    std::int64_t begin = 0;
    for (const ShardSpan& span : spans) {
      const at::Tensor part = shards_[shard].narrow(0, span.offset, span.elements);
      EXPECT_TRUE(part.isnan().all().item<bool>()) << "an element has gone ahead twice";
      part.copy_(elements.narrow(0, begin, span.elements));
      begin += span.elements;
    }
    EXPECT_EQ(begin, elements.numel());
    elements_ += begin;
  }
  void push(Push push) override {
    if (push.record.payload == Payload::kGradients) {
      EXPECT_TRUE(push.tensors.shards.empty());
      push.tensors.shards = shards_;
    }
    link_->push(std::move(push));
  }

  [[nodiscard]] std::int64_t elements_ahead() {
    const std::scoped_lock lock(mutex_);
    return elements_;
  }

 private:
  std::shared_ptr<ServerLink> link_;
  std::mutex mutex_;
  std::vector<at::Tensor> shards_;
  std::int64_t elements_ = 0;
};

}  // namespace sluice::ps::test
