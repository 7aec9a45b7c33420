// virtual_link: connects a worker to a server in the same process. A push waits here until the owner delivers it.
// Threads: one. Errors: BugError if it pulls before it may begin; ConfigError, see check_compression().
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
    check(pulled.has_value(), "readable weights in virtual time");
    into.copy_from(*pulled);
    bytes_ = message.packed.bytes();
    return weights.version;
  }
  void push(Push push) override {
    check(!outgoing_, "the last push is delivered before the next in virtual time");
    push.record.worker = worker_;
    push.record.incarnation = incarnation_;
    push.record.sequence = ++pushes_;
    const Packed packed = push_.compress(push.record, std::move(push.tensors));
    push_.keep();  // it will be committed, or the run ends
    auto arrived = unpack(compression_.push, server_.shape(), packed);
    check(arrived.has_value(), "a readable push in virtual time");
    push.tensors = std::move(*arrived);
    bytes_ += packed.bytes();
    outgoing_ = std::move(push);
  }

  [[nodiscard]] std::optional<Push> take() { return std::exchange(outgoing_, std::nullopt); }
  // Bytes sent both ways since its last step began.
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
