// log_recovery: brings a server that has begun again at a checkpoint to where its predecessor was killed: the updates
// that the log has after it (push_log.h) are made once more, by the same code, of the same pushes, in the same order,
// at the same rates, so that weights, optimizer and running statistics are those of a server that was never killed, bit
// for bit. Their samples count as trained on. Pushes that had been committed and are in no update yet wait again.
// Threads: one. Errors: CheckpointError for a log that is damaged, has a gap or does not fit the weights; ConfigError
// where it is of another configuration; DivergedError where what was pushed makes an update that is not finite.
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
  // Reads all that the folder has from this version on, and checks it, before anything is changed. Where there is
  // something to go on with, the agreement must be that of the log.
  LogRecovery(PushLogOptions log, std::int64_t version);

  [[nodiscard]] std::int64_t updates() const { return updates_; }
  [[nodiscard]] std::int64_t waiting() const { return waiting_; }  // pushes, after those
  [[nodiscard]] const std::string& run() const { return run_; }  // PushLogOptions::run of the log; empty: there is none
  // What the folder has is older than the version: a server without a log has gone on from there since.
  [[nodiscard]] bool is_outdated() const { return is_outdated_; }

  struct Target {
    Server& server;  // at the version; nobody has joined
    data::Ledger& ledger;
    std::int64_t last_version = 0;  // of the run: its state is told
    // As NetworkOptions has it; asked where the log has a file that begins there, as a checkpoint needs.
    std::function<bool(const ServerProgress& before, const ServerProgress& after)> wants_state;
    std::function<void(NetworkUpdate)> on_update;
  };
  // Returns the pushes that wait. Only once.
  [[nodiscard]] std::vector<CommittedPush> into(const Target& target) const;

 private:
  struct Visitor;
  struct Waiting {
    PushKey key;
    storage::LogRecord record;
  };
  // Calls the visitor for each file and each update. Returns what waits at the end, in the order in which it was
  // committed.
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
