// workers: a server and its workers' engines in one process, with real models. Every other worker pushes ahead.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "engine/sync_fixture.h"
#include "ps/ahead_link.h"
#include "ps/virtual_link.h"
#include "ps/worker_sync.h"

namespace sluice::ps::test {

class Workers {
 public:
  using MakeEngine = std::function<std::unique_ptr<engine::Engine>(int worker, engine::SyncFactory)>;

  Workers(int count, ServerOptions options, int shards, const MakeEngine& make_engine) : options_(std::move(options)) {
    for (int w = 0; w < count; ++w) {
      engines.push_back(make_engine(w, [this, w, shards](engine::SyncRequest request) {
        if (!server) {
          server = std::make_unique<Server>(layout_of(request.stages, {.shards = shards, .split_bound = 100}),
                                            values_of(request.stages), statistics_of(request.stages), options_);
        }
        links.push_back(std::make_shared<VirtualLink>(*server, WorkerId{w}));
        const Admission admission = [this](ReplicaId replica, MicroBatchId micro_batch) {
          return !admits || admits(replica, micro_batch);
        };
        std::shared_ptr<ServerLink> link = links.back();
        if (w % 2 == 0) link = std::make_shared<AheadLink>(std::move(link));
        syncs.push_back(std::make_shared<WorkerSync>(
            std::move(request.stages), /*bucket_bytes=*/400, std::move(link),
            WorkerSyncOptions{.payload = options_.policy.payload, .admission = admission}));
        return syncs.back();
      }));
    }
  }

  // Delivers the push of this worker to the server.
  PushRecord deliver(int worker) {
    auto push = links[worker]->take();
    EXPECT_TRUE(push.has_value());
    EXPECT_EQ(server->push(push->record, std::move(push->tensors), /*now=*/0), PushAnswer::kCommitted);
    return push->record;
  }

  [[nodiscard]] storage::TensorMap weights() const {
    storage::TensorMap all;
    const Weights weights = server->weights();
    const auto values = from_shards(server->layout(), weights.tensors.shards);
    for (std::size_t p = 0; p < values.size(); ++p) {
      const Parameter& parameter = server->layout().parameters[p];
      all[parameter.name] = in_shape(parameter, values[p]);
    }
    std::int64_t begin = 0;
    for (const auto& [name, elements] : server->layout().statistics) {
      all[name] = weights.tensors.statistics.narrow(0, begin, elements);
      begin += elements;
    }
    return all;
  }

  std::unique_ptr<Server> server;
  std::vector<std::shared_ptr<VirtualLink>> links;
  std::vector<std::shared_ptr<WorkerSync>> syncs;
  std::vector<std::unique_ptr<engine::Engine>> engines;
  Admission admits;

 private:
  ServerOptions options_;
};

inline storage::TensorMap weights_of(const engine::Engine& engine, const storage::TensorMap& like) {
  storage::TensorMap all;
  const engine::State state = engine.capture();
  for (const auto& [name, values] : like) all[name] = state.model.at(name);
  return all;
}

}  // namespace sluice::ps::test
