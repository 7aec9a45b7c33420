// virtual_link: a worker in the process of its server, one step at a time: what it pushes waits here until its owner
// delivers it. Weights and pushes go through the compression that they would travel with, and their bytes are counted.
// Threads: one. Errors: BugError where it pulls though it may not begin; ConfigError as check_compression().
#pragma once

#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "core/check.h"
#include "ps/compression.h"
#include "ps/pull_compressor.h"
#include "ps/push_compressor.h"
#include "ps/server.h"
#include "ps/server_link.h"

namespace sluice::ps {

class VirtualLink final : public ServerLink {
 public:
  // The server outlives it.
  VirtualLink(Server& server, WorkerId worker, const LinkCompression& compression = {})
      : server_(server),
        worker_(worker),
        incarnation_(server.join(worker, /*now=*/0)),
        compression_(compression),
        push_(compression.push, server.layout()),
        pull_(compression.pull, server.layout()),
        decoder_(compression.pull, server.shape()) {}

  [[nodiscard]] const Layout& layout() const override { return server_.layout(); }
  [[nodiscard]] std::int64_t pull(Tensors& into) override {
    static_cast<void>(server_.begin(worker_));
    const Weights weights = server_.weights();
    const PackedWeights message = pull_.compress(weights.tensors);
    const auto pulled = decoder_.take(message);
    check(pulled.has_value(), "weights in virtual time cannot be read");
    into.copy_from(*pulled);
    bytes_ = message.packed.bytes();
    return weights.version;
  }
  void push(Push push) override {
    check(!outgoing_, "a worker in virtual time pushes before its last push was delivered");
    push.record.worker = worker_;
    push.record.incarnation = incarnation_;
    push.record.sequence = ++pushes_;
    const Packed packed = push_.compress(push.record, std::move(push.tensors));
    push_.keep();  // it is committed, or the run ends
    auto arrived = unpack(compression_.push, server_.shape(), packed);
    check(arrived.has_value(), "a push in virtual time cannot be read");
    push.tensors = std::move(*arrived);
    bytes_ += packed.bytes();
    outgoing_ = std::move(push);
  }

  // What it has pushed since; nothing: it has not.
  [[nodiscard]] std::optional<Push> take() { return std::exchange(outgoing_, std::nullopt); }
  // That have travelled since its last step began, both ways.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  Server& server_;
  WorkerId worker_;
  int incarnation_;
  LinkCompression compression_;
  PushCompressor push_;
  PullCompressor pull_;
  PullDecoder decoder_;
  std::int64_t pushes_ = 0;
  std::int64_t bytes_ = 0;
  std::optional<Push> outgoing_;
};

}  // namespace sluice::ps
