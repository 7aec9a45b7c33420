#include "ps/net/shard_log.h"

#include <limits>
#include <variant>

#include "core/concat.h"
#include "core/error.h"
#include "core/failpoint.h"
#include "ps/net/log_files.h"

namespace sluice::ps {
namespace {

enum class ShardRecord : std::uint64_t { kLoaded = 11, kPart = 12, kStep = 13 };

void append(storage::RecordLog& log, ShardRecord kind, const Frames& frames) {
  ps::append(log, static_cast<std::uint64_t>(kind), frames);
}

template <typename Message, typename Read>
std::optional<Message> message_in(const storage::LogRecord& record, ShardRecord kind, const Read& read) {
  if (record.kind != static_cast<std::uint64_t>(kind) || record.parts.empty()) return std::nullopt;
  const auto message = read({record.parts[0], record.bytes});
  const auto* const of_kind = message ? std::get_if<Message>(&*message) : nullptr;
  return of_kind != nullptr ? std::optional(*of_kind) : std::nullopt;
}

// Applies a record that follows the first one. Returns false if it is invalid.
bool take_again(const storage::LogRecord& record, ShardKeeper& keeper) {
  if (const auto part = message_in<PartKept>(record, ShardRecord::kPart, part_kept)) {
    const auto tensors = tensors_after_header(frames_of(record), keeper.shape());
    return tensors && keeper.hold(part->push, tensors->clone());
  }
  const auto asked = message_in<StepAsked>(record, ShardRecord::kStep, from_lead);
  return asked && keeper.commit(asked->step, asked->update);
}

}  // namespace

void ShardLog::begin(ShardsLoaded loaded, const ShardKeeper& keeper) {
  const ShardsState state = keeper.state();
  loaded.version = keeper.version();
  loaded.steps_done = keeper.steps_done();
  loaded.states = names_of(state.optimizer);
  const auto write = [&](storage::RecordLog& log) {
    append(log, ShardRecord::kLoaded, with_state(header_of(loaded), state));
    for (const auto& [push, part] : keeper.parts())
      append(log, ShardRecord::kPart, with_tensors(header_of(PartKept{push}), part));
    failpoint("shard-log-begun");
  };
  log_ = begin_log(folder_, loaded.version, outlives_, log_.get(), write);
  remove_logs(folder_, 0, loaded.version);
  remove_logs(folder_, loaded.version + 1, std::numeric_limits<std::int64_t>::max());  // another course
}

void ShardLog::held(const PushKey& push, const Tensors& part) {
  append(*log_, ShardRecord::kPart, with_tensors(header_of(PartKept{push}), part));
  failpoint("part-written");
}

void ShardLog::committed(const StepAsked& step) {
  append(*log_, ShardRecord::kStep, {header_of(step)});
  failpoint("step-written");
}

std::optional<KeptShards> read_shard_log(const std::filesystem::path& folder,
                                         const optim::OptimizerOptions& optimizer) {
  const std::vector<std::int64_t> versions = logged_versions(folder);
  if (versions.empty()) return std::nullopt;
  const auto file = log_file(folder, versions.back());
  const std::string advice = concat("; to continue from a checkpoint without it, remove ", folder.string(),
                                    " and start server 0 with --resume RUN/checkpoints/step-N");
  const auto require = [&](bool is_good, const char* what) {
    if (!is_good) throw CheckpointError(file.string(), " ", what, advice);
  };
  storage::RecordLogReader reader(file, advice);
  auto record = reader.next();
  const auto loaded = record ? message_in<ShardsLoaded>(*record, ShardRecord::kLoaded, from_lead) : std::nullopt;
  require(loaded.has_value(), "is not a log of shards of this version of Sluice");
  const TensorsShape shape = loaded->assignment.shape();
  const auto state = state_after_header(frames_of(*record), shape, loaded->states);
  require(state.has_value(), "is of another model");
  KeptShards kept{*loaded, std::make_unique<ShardKeeper>(optimizer, shape, *state, loaded->version)};
  kept.keeper->go_on_after(static_cast<int>(loaded->steps_done));
  while ((record = reader.next())) require(take_again(*record, *kept.keeper), "has a record at a wrong position");
  warn_of_torn_end(reader);
  return kept;
}

}  // namespace sluice::ps
