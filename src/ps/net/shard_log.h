// shard_log: the log of a shard server (log_files.h). Each file begins with the shards and the optimizer after an
// update and the parts of pushes that waited then; parts and steps follow in order. The newest file alone restores the
// server, bit for bit. Threads: one. Errors: StorageError; CheckpointError for damaged files.
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

  // Begins a file with the keeper's current state and removes older files. loaded: identifies the shards.
  void begin(ShardsLoaded loaded, const ShardKeeper& keeper);
  // Both write on return. If the log must outlive the machine, the record is durable only after make_durable().
  void held(const PushKey& push, const Tensors& part);
  void committed(const StepAsked& step);
  void make_durable() { log_->sync(); }

 private:
  std::filesystem::path folder_;
  storage::Outlives outlives_;
  std::unique_ptr<storage::RecordLog> log_;
};

struct KeptShards {
  ShardsLoaded loaded;
  std::unique_ptr<ShardKeeper> keeper;
};
// Reads the newest file; nothing if there is no file.
[[nodiscard]] std::optional<KeptShards> read_shard_log(const std::filesystem::path& folder,
                                                       const optim::OptimizerOptions& optimizer);

}  // namespace sluice::ps
