#include "ps/net/shard_log.h"

#include <limits>
#include <utility>
#include <variant>

#include "core/concat.h"
#include "core/error.h"
#include "core/failpoint.h"
#include "core/log.h"
#include "core/text.h"
#include "ps/net/push_log.h"
#include "storage/files.h"

namespace sluice::ps {
namespace {

enum class ShardRecord : std::uint64_t { kLoaded = 11, kPart = 12, kStep = 13 };

void append(storage::RecordLog& log, ShardRecord kind, const Frames& frames) {
  std::vector<std::string_view> parts;
  for (const Frame& frame : frames) parts.push_back(frame.bytes);
  log.append(static_cast<std::uint64_t>(kind), parts);
}

template <typename Message, typename Read>
std::optional<Message> message_in(const storage::LogRecord& record, ShardRecord kind, const Read& read) {
  if (record.kind != static_cast<std::uint64_t>(kind) || record.parts.empty()) return std::nullopt;
  const auto message = read({record.parts[0], record.bytes});
  const auto* const of_kind = message ? std::get_if<Message>(&*message) : nullptr;
  return of_kind != nullptr ? std::optional(*of_kind) : std::nullopt;
}

Frames frames_of(const storage::LogRecord& record) {
  Frames frames;
  for (const std::string_view part : record.parts) frames.push_back({part, record.bytes});
  return frames;
}

// Whether the record was one of those that follow the first.
bool take_again(const storage::LogRecord& record, ShardKeeper& keeper) {
  if (const auto part = message_in<PartMade>(record, ShardRecord::kPart, part_from_worker)) {
    const auto tensors = tensors_after_header(frames_of(record), keeper.shape());
    return tensors && keeper.hold(part->push, tensors->clone());
  }
  const auto asked = message_in<StepAsked>(record, ShardRecord::kStep, from_lead);
  return asked && keeper.take(asked->step, asked->update);
}

}  // namespace

void ShardLog::begin(ShardsLoaded loaded, const ShardKeeper& keeper) {
  const ShardsState state = keeper.state();
  loaded.version = keeper.version();
  loaded.steps_done = keeper.steps_done();
  loaded.states = names_of(state.optimizer);
  if (!log_) storage::make_directories(folder_);
  if (log_) log_->sync();
  auto log = std::make_unique<storage::RecordLog>(log_file(folder_, loaded.version), outlives_);
  append(*log, ShardRecord::kLoaded, with_state(header_of(loaded), state));
  for (const auto& [push, part] : keeper.parts())
    append(*log, ShardRecord::kPart, with_tensors(header_of(PartMade{push}), part));
  failpoint("shard-log-begun");
  log->publish();
  log_ = std::move(log);
  remove_logs(folder_, 0, loaded.version);
  remove_logs(folder_, loaded.version + 1, std::numeric_limits<std::int64_t>::max());  // of another course
}

void ShardLog::held(const PushKey& push, const Tensors& part) {
  append(*log_, ShardRecord::kPart, with_tensors(header_of(PartMade{push}), part));
  failpoint("part-written");
}

void ShardLog::taken(const StepAsked& step) {
  append(*log_, ShardRecord::kStep, {header_of(step)});
  failpoint("step-written");
}

void set_logs_aside(const std::filesystem::path& folder) {
  for (const std::int64_t version : logged_versions(folder)) {
    const std::filesystem::path file = log_file(folder, version), aside = file.string() + ".replaced";
    std::error_code error;
    std::filesystem::rename(file, aside, error);
    if (error) throw StorageError(concat("cannot rename ", file.string(), ": ", error.message()));
    log_warning(
        concat(file.string(),
               " is of another run, or of updates after the checkpoint that this run goes on from; it is kept as ",
               aside.string()));
  }
}

std::optional<KeptShards> read_shard_log(const std::filesystem::path& folder,
                                         const optim::OptimizerOptions& optimizer) {
  const std::vector<std::int64_t> versions = logged_versions(folder);
  if (versions.empty()) return std::nullopt;
  const auto file = log_file(folder, versions.back());
  const std::string advice = concat("; to go on from a checkpoint without it, remove ", folder.string(),
                                    " and start server 0 with --resume RUN/checkpoints/step-N");
  const auto require = [&](bool is_good, const char* what) {
    if (!is_good) throw CheckpointError(concat(file.string(), " ", what, advice));
  };
  storage::RecordLogReader reader(file, advice);
  auto record = reader.next();
  const auto loaded = record ? message_in<ShardsLoaded>(*record, ShardRecord::kLoaded, from_lead) : std::nullopt;
  require(loaded.has_value(), "does not begin as a log of shards of this version of Sluice does");
  const TensorsShape shape = loaded->assignment.shape();
  const auto state = state_after_header(frames_of(*record), shape, loaded->states);
  require(state.has_value(), "is of another model");
  KeptShards kept{*loaded, std::make_unique<ShardKeeper>(optimizer, shape, *state, loaded->version)};
  kept.keeper->go_on_after(static_cast<int>(loaded->steps_done));
  while ((record = reader.next()))
    require(take_again(*record, *kept.keeper), "has a record that does not belong there");
  if (reader.torn_bytes() > 0)
    log_warning(concat(file.string(), ": the last ", human_bytes(reader.torn_bytes()),
                       " are no whole record, as when a server is killed while it writes, and are left out"));
  return kept;
}

}  // namespace sluice::ps
