// part_link: a worker's connection to one shard server. A thread of its own sends parts of pushes and receives parts of
// weights. Messages that are lost with a connection are sent again.
// Threads: one besides its owner's. Errors: never throws; the lead server notices a silent server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/clock.h"
#include "ps/net/frame_socket.h"
#include "ps/net/shard_messages.h"

namespace sluice::ps {

struct PartVersion {  // of the weights
  Incarnation incarnation;
  std::int64_t version = kNone;

  friend bool operator==(const PartVersion&, const PartVersion&) = default;
};

struct PartLinkOptions {
  std::string host;
  int port = 0;
  Keys keys;
  std::string process_id;
  Nanoseconds heartbeat_interval = 500'000'000;
  // Called from the link's thread. on_heartbeat: the last version sent, even if it is lost.
  std::function<void(const WeightsPart&, Frames)> on_weights;
  std::function<void(const PartVersion&)> on_heartbeat;
};

class PartLink {
 public:
  explicit PartLink(PartLinkOptions options);
  ~PartLink();

  // Sends a part of the next push early, and keeps it for repetition like that push, unless forget_ahead() drops it.
  void push_ahead(const PushAhead& ahead, const at::Tensor& elements);
  void forget_ahead();
  // Sends a part and keeps it for repetition until the next push() or forget(). Without shards if they were sent ahead.
  void push(const PartMade& made, const Packed& shards);
  void forget();

 private:
  class Connection;
  std::unique_ptr<Connection> connection_;
};

}  // namespace sluice::ps
