#include "ps/net/log_recovery.h"

#include <algorithm>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "ps/net/log_files.h"

namespace sluice::ps {
namespace {

void check_agreement(const comm::Agreement& now, const comm::Agreement& then, const std::string& file) {
  const auto found = comm::first_disagreement(then, now);
  if (!found) return;
  throw ConfigError(found->key, " is ", found->other, " now, but was ", found->one, " when the pushes in ", file,
                    " were logged; use that value, or name a checkpoint with --resume to continue without them");
}

}  // namespace

struct LogRecovery::Visitor {
  std::function<void(const LogBegin&)> begin;
  std::function<void(const LogUpdate&, const std::vector<storage::LogRecord>&)> update;
  bool warns = false;  // log a warning about skipped parts
};

LogRecovery::LogRecovery(PushLogOptions log, std::int64_t version) : options_(std::move(log)), version_(version) {
  files_ = logged_versions(options_.folder);
  if (files_.empty()) return;
  is_outdated_ = files_.back() < version_;
  std::erase_if(files_, [&](std::int64_t file) { return file < version_; });
  if (files_.empty()) return;
  if (files_.front() != version_) {
    throw CheckpointError("the log of pushes in ", options_.folder.string(), " begins after update ", files_.front(),
                          ", and does not continue from update ", version_, advice());
  }
  comm::Agreement agreement;
  const Visitor visitor{[&](const LogBegin& begin) {
                          agreement = begin.agreement;
                          run_ = begin.run;
                        },
                        [&](const auto&, const auto&) {
                          if (updates_++ == 0) check_agreement(options_.agreement, agreement, options_.folder.string());
                        }};
  waiting_ = std::ssize(walk(visitor));
  if (waiting_ > 0) check_agreement(options_.agreement, agreement, options_.folder.string());
}

std::string LogRecovery::advice() const {
  return concat("; to continue from a checkpoint without the updates after it, name it with --resume, or remove ",
                options_.folder.string());
}

std::vector<LogRecovery::Waiting> LogRecovery::walk(const Visitor& visitor) const {
  std::vector<Waiting> waiting;
  std::int64_t reached = version_;
  for (const std::int64_t file : files_) read_file(file, reached, waiting, visitor);
  return waiting;
}

void LogRecovery::read_file(std::int64_t version, std::int64_t& reached, std::vector<Waiting>& waiting,
                            const Visitor& visitor) const {
  const auto file = log_file(options_.folder, version);
  const auto require = [&](bool is_good, const char* what) {
    if (!is_good) throw CheckpointError(file.string(), " ", what, advice());
  };
  storage::RecordLogReader reader(file, advice());
  auto record = reader.next();
  const auto begin = record ? begin_in(*record) : std::nullopt;
  require(begin && begin->version == version, "is not a log of pushes of this version of Sluice");
  require(version == reached, "does not continue where the file before it ends");
  visitor.begin(*begin);
  waiting.clear();  // the file begins with the waiting pushes
  while ((record = reader.next())) {
    if (const auto key = push_key_in(*record)) {
      waiting.push_back({*key, std::move(*record)});
      continue;
    }
    const auto update = update_in(*record);
    require(update && update->version == reached + 1, "has a record at a wrong position");
    std::vector<storage::LogRecord> records;
    for (const PushKey& key : update->pushes) {
      const auto found = std::ranges::find(waiting, key, &Waiting::key);
      require(found != waiting.end(), "lacks a push of an update");
      records.push_back(std::move(found->record));
      waiting.erase(found);
    }
    visitor.update(*update, records);
    reached = update->version;
  }
  if (visitor.warns) warn_of_torn_end(reader);
}

std::vector<CommittedPush> LogRecovery::into(const Target& target) const {
  if (files_.empty()) return {};
  const Visitor visitor{[&](const LogBegin& begin) { check_base(begin, target); },
                        [&](const auto& update, const auto& records) { redo(update, records, target); },
                        /*warns=*/true};
  std::vector<CommittedPush> waiting;
  for (const Waiting& one : walk(visitor)) waiting.push_back(push_of(one.record, target.server.shape()));
  return waiting;
}

void LogRecovery::check_base(const LogBegin& begin, const Target& target) const {
  const std::string file = log_file(options_.folder, begin.version).string();
  if (begin.layout != digest_of(target.server.layout()))
    throw ConfigError(file, " is of another model or number of shards", advice());
  if (begin.weights == digest_of(target.server.weights().tensors)) return;
  if (begin.version == version_)
    throw CheckpointError(file, " continues from other weights than those after update ", version_, advice());
  log_warning("the weights after update ", begin.version,
              " differ from the logged ones in their last bits, as happens with another number of threads or another "
              "processor");
}

CommittedPush LogRecovery::push_of(const storage::LogRecord& record, const TensorsShape& shape) const {
  auto push = push_in(record, shape);
  if (!push)
    throw CheckpointError(
        concat("the log of pushes in ", options_.folder.string(), " has a push of another model", advice()));
  return std::move(*push);
}

void LogRecovery::redo(const LogUpdate& logged, const std::vector<storage::LogRecord>& records,
                       const Target& target) const {
  Server& server = target.server;
  NetworkUpdate update{.before = server.progress()};
  Update again{.version = logged.version};
  std::vector<Tensors> tensors;
  for (const storage::LogRecord& record : records) {
    CommittedPush committed = push_of(record, server.shape());
    const auto lease = target.ledger.lease_again(committed.epoch, committed.samples);
    if (!lease)
      throw CheckpointError("update ", logged.version, " in ", options_.folder.string(),
                            " has samples that were trained on before", advice());
    target.ledger.push_all(lease->id);
    const Push& push = committed.push;
    update.pushes.push_back({.record = push.record,
                             .scores = push.scores,
                             .times = push.times,
                             .staleness = staleness_of(push.record, logged.version)});
    again.pushes.push_back(push.record);
    tensors.push_back(std::move(committed.push.tensors));
  }
  update.done = server.redo(std::move(again), std::move(tensors), logged.lr, logged.other_squares);
  if (update.done.is_dropped)
    throw DivergedError("update ", logged.version, " in ", options_.folder.string(),
                        " is not finite, although its pushes are; lower the learning rate", advice());
  update.after = server.progress();
  update.at = now_ns();
  const bool begins_file = std::ranges::binary_search(files_, logged.version);
  // The states of other servers are not requested during recovery.
  const bool is_last = logged.version == target.last_version && server.others().empty();
  if (is_last || (begins_file && target.wants_state && target.wants_state(update.before, update.after))) {
    update.state = server.state();
    update.ledger = target.ledger.state();
  }
  if (target.on_update) target.on_update(std::move(update));
}

}  // namespace sluice::ps
