// part_link: a worker's connection to one shard server (shard_server.h): parts of pushes leave and parts of weights
// arrive in a thread of its own, at once with those of the other servers. What they are parts of, and whether they
// count, is between the worker and the lead server (network_link.h). What is lost with a connection is sent again.
// Threads: one besides its owner's. Errors: none; who is silent is looked after by the lead server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/clock.h"
#include "ps/net/frame_socket.h"
#include "ps/net/shard_messages.h"

namespace sluice::ps {

// Weights, and the worker's incarnation that they are for, which only within a server epoch (messages.h) is one.
struct PartVersion {
  std::int64_t server_epoch = 0;
  std::int64_t incarnation = 0;
  std::int64_t version = kNone;

  [[nodiscard]] bool is_same_incarnation_as(const PartVersion& other) const {
    return server_epoch == other.server_epoch && incarnation == other.incarnation;
  }
  friend bool operator==(const PartVersion&, const PartVersion&) = default;
};

struct PartLinkOptions {
  std::string host;
  int port = 0;
  Keys keys;
  std::string process_id;  // of the worker: also its name at the socket
  Nanoseconds heartbeat_interval = 500'000'000;
  // Both are called from the link's thread. on_weights: a part, as it came. on_heartbeat: the version that the server
  // sent last, whether or not it has come.
  std::function<void(const WeightsPart&, Frames)> on_weights;
  std::function<void(const PartVersion&)> on_heartbeat;
};

class PartLink {
 public:
  explicit PartLink(PartLinkOptions options);
  ~PartLink();
  PartLink(const PartLink&) = delete;
  PartLink& operator=(const PartLink&) = delete;

  // What goes ahead of the next push. Is kept with it.
  void push_ahead(const PushAhead& ahead, const at::Tensor& elements);
  void forget_ahead();
  // Is kept, to be sent again, until the next one or forget(). Without shards: these have gone ahead.
  void push(const PartMade& made, const Packed& shards);
  void forget();

 private:
  class Connection;
  std::unique_ptr<Connection> connection_;
};

}  // namespace sluice::ps
