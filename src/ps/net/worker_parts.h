// worker_parts: a worker's exchange with the servers that keep some of the shards, one connection each (part_link.h).
// It sends parts of pushes and collects parts of weights until those of one version are complete.
// Threads: any. Errors: ConfigError if the layout does not fit the number of servers; PeerError for other weights.
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
  std::vector<ServerAddress> servers;  // servers of the later shards, in order
  Keys keys;
  std::string process_id;
  Nanoseconds heartbeat_interval = 500'000'000;
  Compression pull;
  std::function<void()> on_change;  // something has arrived; called from the connections' threads
};

class WorkerParts {
 public:
  explicit WorkerParts(WorkerPartsOptions options);

  // With the layout of the first Welcome.
  void begin(const Layout& layout);

  [[nodiscard]] TensorsShape first_shape() const { return shape_of(layout_, range_of(0)); }
  // Sends elements ahead of a push; false if the lead server keeps them. `shard` is an index in the layout.
  [[nodiscard]] bool push_ahead(PushAhead ahead, const at::Tensor& elements);
  void forget_ahead();
  // Sends the parts of the other servers and returns the lead server's part, without shards if these were sent ahead.
  [[nodiscard]] Packed push(PartMade made, const Packed& all);
  void forget();

  [[nodiscard]] bool has(const PartVersion& weights) const;
  // Logs once which servers are late. Throws PeerError if the wait exceeds the limit.
  void check_wait(const PartVersion& weights, Nanoseconds waited, Nanoseconds limit);
  // Appends all parts to into.shards, or returns false.
  [[nodiscard]] bool take(const PartVersion& weights, Tensors& into);
  // Whether some of these parts were sent but have not arrived. Requires that these weights were not taken.
  [[nodiscard]] bool has_lost(const PartVersion& weights) const;

 private:
  struct Part {
    std::deque<std::pair<WeightsPart, Frames>> arrived;  // not decoded yet
    std::optional<PullDecoder> decoder;
    PartVersion version;             // version of the last decoded weights
    PartVersion sent;                // version that the server has sent last, by its heartbeats
    std::optional<Tensors> weights;  // nothing: not arrived, or taken
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
  [[nodiscard]] std::string lacking(const PartVersion& weights) const;  // under the lock
  [[nodiscard]] bool has_all(const PartVersion& weights) const;         // under the lock
  void on_weights(std::size_t part, const WeightsPart& header, Frames frames);
  void note_heartbeat(std::size_t part, const PartVersion& sent);
  void decode();

  WorkerPartsOptions options_;
  Layout layout_;  // written once, before any other thread reads it
  mutable std::mutex mutex_;
  bool has_begun_ = false;                        // guarded by mutex_, as the members below
  std::vector<Part> parts_;                       // [server - 1]
  PartVersion waited_for_;                        // the version that check_wait() has logged
  std::optional<std::string> bad_;                // error about invalid weights
  std::vector<std::unique_ptr<PartLink>> links_;  // declared last, because their threads use the other members
};

}  // namespace sluice::ps
