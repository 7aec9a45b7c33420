// push_log: the log of a server's committed pushes (ps.log). Each file (log_files.h) begins with digests of the state
// after update V and with the pushes that waited then; pushes and updates follow in order. A checkpoint of V plus this
// file and the later ones therefore restores the server (log_recovery.h).
// Records: kBegin {JSON}; kPush {header of PushMade, epoch and samples, shards, statistics}; kUpdate {JSON}.
// Threads: one. Errors: StorageError; CheckpointError for damaged files.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/start.h"
#include "ps/net/push_journal.h"
#include "storage/record_log.h"

namespace sluice::ps {

struct PushLogOptions {
  std::filesystem::path folder;
  storage::Outlives outlives = storage::Outlives::kProcess;
  comm::Agreement agreement;  // what an update depends on besides pushes, weights and learning rate
  std::string run = {};       // id by which other servers recognize their shards of this run
};

class PushLog final : public PushJournal {
 public:
  // Writes nothing before begin().
  PushLog(PushLogOptions options, const Layout& layout);

  void write_push(const CommittedPush& push) override;
  void write_update(const UpdateRecord& done) override;
  void begin(const Weights& weights, const std::vector<CommittedPush>& waiting) override;
  [[nodiscard]] bool must_make_durable() const override { return options_.outlives == storage::Outlives::kMachine; }
  void make_durable() override { log_->sync(); }

 private:
  PushLogOptions options_;
  Layout layout_;
  std::unique_ptr<storage::RecordLog> log_;
};

// --- Contents of the files

struct LogBegin {
  std::int64_t version = 0;
  std::string weights;  // digests of the weights and the layout
  std::string layout;
  std::string run;
  comm::Agreement agreement;
};
struct LogUpdate {
  std::int64_t version = 0;
  double lr = 0;
  double other_squares = 0;
  std::vector<PushKey> pushes;
};

enum class LogKind : std::uint64_t { kBegin = 1, kPush = 2, kUpdate = 3 };

// They return nothing if the record is of another kind or has another format.
[[nodiscard]] std::optional<LogBegin> begin_in(const storage::LogRecord& record);
[[nodiscard]] std::optional<LogUpdate> update_in(const storage::LogRecord& record);
[[nodiscard]] std::optional<PushKey> push_key_in(const storage::LogRecord& record);
// The tensors are views of the record.
[[nodiscard]] std::optional<CommittedPush> push_in(const storage::LogRecord& record, const TensorsShape& shape);

[[nodiscard]] std::string digest_of(const Tensors& tensors);
[[nodiscard]] std::string digest_of(const Layout& layout);

}  // namespace sluice::ps
