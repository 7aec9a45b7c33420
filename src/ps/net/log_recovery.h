// log_recovery: repeats the updates that the log (push_log.h) has after the checkpoint: same code, pushes, order and
// rates. Weights, optimizer and running statistics are then those of a server that was never killed, bit for bit. The
// samples of these updates count as used. Committed pushes that are in no update yet wait again.
// Threads: one. Errors: CheckpointError for a log that is damaged, has a gap or does not fit the weights; ConfigError
// if it belongs to another configuration; DivergedError if a repeated update is not finite.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/ledger.h"
#include "ps/net/network_server.h"
#include "ps/net/push_log.h"
#include "ps/server.h"

namespace sluice::ps {

class LogRecovery {
 public:
  // Reads and checks the folder's files from this version on, before anything is changed. If they have updates or
  // pushes, their agreement must equal the one in `log`.
  LogRecovery(PushLogOptions log, std::int64_t version);

  [[nodiscard]] std::int64_t updates() const { return updates_; }
  [[nodiscard]] std::int64_t waiting() const { return waiting_; }
  [[nodiscard]] const std::string& run() const { return run_; }  // the log's PushLogOptions::run; may be empty
  // Whether the folder's files are older than the version, because a server without a log has continued since.
  [[nodiscard]] bool is_outdated() const { return is_outdated_; }

  struct Target {
    Server& server;  // at the version; no worker has joined
    data::Ledger& ledger;
    std::int64_t last_version = 0;  // last version of the run: its state is reported
    // See NetworkOptions. Called if the log has a file that begins at the update, as it does for a checkpoint.
    std::function<bool(const ServerProgress& before, const ServerProgress& after)> wants_state;
    std::function<void(NetworkUpdate)> on_update;
  };
  // Repeats the updates and returns the waiting pushes. Call only once.
  [[nodiscard]] std::vector<CommittedPush> into(const Target& target) const;

 private:
  struct Visitor;
  struct Waiting {
    PushKey key;
    storage::LogRecord record;
  };
  // Returns the waiting pushes in the order of commits.
  [[nodiscard]] std::vector<Waiting> walk(const Visitor& visitor) const;
  void read_file(std::int64_t version, std::int64_t& reached, std::vector<Waiting>& waiting,
                 const Visitor& visitor) const;
  void check_base(const LogBegin& begin, const Target& target) const;
  void redo(const LogUpdate& update, const std::vector<storage::LogRecord>& records, const Target& target) const;
  [[nodiscard]] CommittedPush push_of(const storage::LogRecord& record, const TensorsShape& shape) const;
  [[nodiscard]] std::string advice() const;

  PushLogOptions options_;
  std::int64_t version_;
  std::vector<std::int64_t> files_;
  std::string run_;
  std::int64_t updates_ = 0;
  std::int64_t waiting_ = 0;
  bool is_outdated_ = false;
};

}  // namespace sluice::ps
