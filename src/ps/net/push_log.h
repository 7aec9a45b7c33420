// push_log: the pushes that a server has committed, in files of the run directory, so that they outlive it (ps.log).
// Each file (log_files.h) is of one time between two copies of the server's state: it begins with what the state after
// update V is known by, and with the pushes that waited then; pushes and updates follow in their order. So a checkpoint
// of V and this file, and those that follow, are all that a server has to know (log_recovery.h).
// Records: kBegin {JSON}; kPush {as PushMade travels, epoch and samples, shards, statistics}; kUpdate {JSON}.
// Threads: one. Errors: StorageError; CheckpointError for files that are damaged.
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
  comm::Agreement agreement;  // what the result of an update depends on, beside pushes, weights and learning rate
  std::string run = {};       // by which other servers know that they have this run's shards
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

// --- What is in the files.

struct LogBegin {
  std::int64_t version = 0;
  std::string weights;  // digests of them, and of the layout
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

// Nothing: the record is not of that kind, or not as this version writes it.
[[nodiscard]] std::optional<LogBegin> begin_in(const storage::LogRecord& record);
[[nodiscard]] std::optional<LogUpdate> update_in(const storage::LogRecord& record);
[[nodiscard]] std::optional<PushKey> push_key_in(const storage::LogRecord& record);
// Tensors are views of the record.
[[nodiscard]] std::optional<CommittedPush> push_in(const storage::LogRecord& record, const TensorsShape& shape);

[[nodiscard]] std::string digest_of(const Tensors& tensors);
[[nodiscard]] std::string digest_of(const Layout& layout);

}  // namespace sluice::ps
