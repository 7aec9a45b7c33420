// other_servers: the servers of a run that keep some of the shards, as the lead server reaches them (ps.servers;
// ps/net/shard_link.h). Threads: one at a time. Errors: those of the links.
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
    std::string version;  // of Sluice
    std::string run;      // ps::ShardLinkOptions::run
    bool has_checkpoint = false;
  };

  // Nobody is waited for yet.
  void connect(const Run& run, const ps::Layout& layout);
  // Wait until all are there, with what a checkpoint has of theirs, or with what they have kept themselves. Also until
  // a signal asks to stop.
  void load(const std::vector<at::Tensor>& shards, const ps::NamedStates& optimizer, std::int64_t version);
  void resume(std::int64_t version);

  [[nodiscard]] std::vector<ps::ShardLink*> links() const;
  [[nodiscard]] std::vector<ps::OtherShards*> as_shards() const;
  [[nodiscard]] bool is_any_lost() const;
  // Instead of all that, where the run was done before: tells those who have come, each once. True: it has told all.
  [[nodiscard]] bool notify_connected();
  // The last thing, once: tells them that the run is over, and why; without a failure it is done.
  void end(const std::optional<Error>& failure);

 private:
  [[nodiscard]] bool is_stopped() const;

  std::vector<std::unique_ptr<ps::ShardLink>> all_;
  std::vector<ps::ShardRange> ranges_;
  bool have_started_ = false;
  bool have_ended_ = false;
};

}  // namespace sluice::train
