// other_servers: the lead server's links to the shard servers (ps.servers). Threads: one at a time. Errors: the links'.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "ps/net/shard_link.h"
#include "train/serve/server_role.h"
#include "train/setup/setup.h"

namespace sluice::train {

class OtherServers {
 public:
  struct Run {
    const Setup& setup;
    const ServerRole& role;
    std::string version;
    std::string run;
    bool has_checkpoint = false;
  };

  void connect(const Run& run, const ps::Layout& layout);
  // Both wait for all servers, or until a signal asks to stop. resume() uses the shards that they kept.
  void load(const std::vector<at::Tensor>& shards, const ps::NamedStates& optimizer, std::int64_t version);
  void resume(std::int64_t version);

  [[nodiscard]] std::vector<ps::ShardLink*> links() const;
  [[nodiscard]] std::vector<ps::OtherShards*> as_shards() const;
  [[nodiscard]] bool is_any_lost() const;
  // For a run that was done before, instead of load(): sends each connected server the end. True: all have got it.
  [[nodiscard]] bool notify_connected();
  // Sends the end of the run and its failure, if any. Call it last; only the first call counts.
  void end(const std::optional<Error>& failure);

 private:
  [[nodiscard]] bool is_stopped() const;

  std::vector<std::unique_ptr<ps::ShardLink>> all_;
  std::vector<ps::ShardRange> ranges_;
  bool have_started_ = false;
  bool have_ended_ = false;
};

}  // namespace sluice::train
