// worker_parts: what a worker (network_link.h) exchanges with the servers that keep some of the shards, one connection
// each (part_link.h): parts of its pushes, and parts of its weights until all of one version are there.
// Threads: any. Errors: ConfigError where the layout is not for so many servers; PeerError for weights of another one.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ps/net/part_link.h"
#include "ps/net/refusals.h"
#include "ps/pull_compressor.h"

namespace sluice::ps {

struct WorkerPartsOptions {
  std::vector<ServerAddress> servers;  // of the later shards, in their order
  Keys keys;
  std::string process_id;  // of the worker
  Nanoseconds heartbeat_interval = 500'000'000;
  Compression pull;
  std::function<void()> on_change;  // something has come; from the connections' threads
};

class WorkerParts {
 public:
  explicit WorkerParts(WorkerPartsOptions options);

  // What the worker learns with its welcome; only once.
  void begin(const Layout& layout);

  // Of the lead server.
  [[nodiscard]] TensorsShape first_shape() const { return shape_of(layout_, range_of(0)); }
  // What goes ahead of a push to another server than that one; `shard` of the layout. False: it is that one's.
  [[nodiscard]] bool push_ahead(PushAhead ahead, const at::Tensor& elements);
  void forget_ahead();
  // made: which push. Sends the parts of the others, and returns that server's; without shards where these have gone
  // ahead.
  [[nodiscard]] Packed push(PartMade made, const Packed& all);
  // The push is answered.
  void forget();

  // Whether all parts of those weights are here.
  [[nodiscard]] bool has(const PartVersion& weights) const;
  // What has been waited for so long: says once which servers have not sent theirs; PeerError where that takes longer
  // than the limit.
  void check_wait(const PartVersion& weights, Nanoseconds waited, Nanoseconds limit);
  // Appends these parts to into.shards. False, and nothing is done: they are not here (any more).
  [[nodiscard]] bool take(const PartVersion& weights, Tensors& into);
  // Whether some of those parts were sent, but are not here. Requires: these weights were not taken.
  [[nodiscard]] bool has_lost(const PartVersion& weights) const;

 private:
  struct Part {
    std::deque<std::pair<WeightsPart, Frames>> arrived;  // and not decoded yet
    std::optional<PullDecoder> decoder;
    PartVersion version;             // of the weights that were decoded last
    PartVersion sent;                // that the server has sent last, by its heartbeats
    std::optional<Tensors> weights;  // nothing: none, or they were taken
  };

  [[nodiscard]] ShardRange range_of(std::size_t server) const {
    return shards_of_server(layout_, static_cast<int>(server), static_cast<int>(parts_.size()) + 1);
  }
  [[nodiscard]] std::int64_t first_shard(std::size_t server) const {
    return static_cast<std::int64_t>(range_of(server).begin);
  }
  [[nodiscard]] std::string named(std::size_t server) const {
    const ServerAddress& at = options_.servers[server - 1];
    return server_named(static_cast<int>(server), at.host, at.port);
  }
  [[nodiscard]] std::string lacking(const PartVersion& weights) const;
  [[nodiscard]] bool has_all(const PartVersion& weights) const;
  void on_weights(std::size_t part, const WeightsPart& header, Frames frames);
  void note_heartbeat(std::size_t part, const PartVersion& sent);
  void decode();

  WorkerPartsOptions options_;
  Layout layout_;  // written once, before anybody else reads it
  mutable std::mutex mutex_;
  bool has_begun_ = false;                        // guarded by mutex_, as what follows
  std::vector<Part> parts_;                       // [server - 1]
  PartVersion waited_for_;                        // that was told of
  std::optional<std::string> bad_;                // what was sent that cannot be
  std::vector<std::unique_ptr<PartLink>> links_;  // the last member: their threads end before the others do
};

}  // namespace sluice::ps
