// shard_log: what a shard server (shard_server.h) must not forget, in files of its own folder (log_files.h): each
// begins with the shards and the optimizer after some update, and with the parts of pushes that waited then; parts and
// steps follow in their order. The newest file is all that such a server needs to be what it was, bit for bit. Records:
// kLoaded {as ShardsLoaded travels}; kPart {as PartKept}; kStep {as StepAsked}. Threads: one. Errors: StorageError;
// CheckpointError for files that are damaged.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "ps/net/shard_messages.h"
#include "ps/shard_keeper.h"
#include "storage/record_log.h"

namespace sluice::ps {

class ShardLog {
 public:
  ShardLog(std::filesystem::path folder, storage::Outlives outlives)
      : folder_(std::move(folder)), outlives_(outlives) {}

  // A new file, of what the keeper has now, after which the older ones go. loaded: whose shards these are.
  void begin(ShardsLoaded loaded, const ShardKeeper& keeper);
  // Written when they return; on the disk, where it is to outlive the machine, after make_durable().
  void held(const PushKey& push, const Tensors& part);
  void committed(const StepAsked& step);
  void make_durable() { log_->sync(); }

 private:
  std::filesystem::path folder_;
  storage::Outlives outlives_;
  std::unique_ptr<storage::RecordLog> log_;
};

// What the newest file says; nothing: there is none.
struct KeptShards {
  ShardsLoaded loaded;
  std::unique_ptr<ShardKeeper> keeper;
};
[[nodiscard]] std::optional<KeptShards> read_shard_log(const std::filesystem::path& folder,
                                                       const optim::OptimizerOptions& optimizer);

}  // namespace sluice::ps
