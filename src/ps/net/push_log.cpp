#include "ps/net/push_log.h"

#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "core/failpoint.h"
#include "ps/net/log_files.h"
#include "ps/net/messages.h"
#include "storage/checksum.h"

namespace sluice::ps {
namespace {

constexpr int kFormat = 3;

void append_text(storage::RecordLog& log, LogKind kind, const std::string& text) {
  const std::string_view part = text;
  log.append(static_cast<std::uint64_t>(kind), {&part, 1});
}

void append_push(storage::RecordLog& log, const CommittedPush& committed) {
  std::vector<std::int64_t> samples{committed.epoch};
  samples.insert(samples.end(), committed.samples.begin(), committed.samples.end());
  const Push& push = committed.push;
  constexpr std::int64_t kAnyLease = 0;  // the record has the samples instead
  Frames frames = with_tensors(header_of(PushMade{push.record, push.scores, push.times, kAnyLease}), push.tensors);
  frames.insert(frames.begin() + 1, frame_of(at::tensor(samples, at::kLong)));
  append(log, static_cast<std::uint64_t>(LogKind::kPush), frames);
}

bool is_of(const storage::LogRecord& record, LogKind kind, std::size_t parts) {
  return record.kind == static_cast<std::uint64_t>(kind) && record.parts.size() >= parts;
}

std::optional<PushMade> push_made_in(const storage::LogRecord& record) {
  if (!is_of(record, LogKind::kPush, 2)) return std::nullopt;
  const auto message = from_worker({record.parts[0], record.bytes});
  const auto* const push = message ? std::get_if<PushMade>(&*message) : nullptr;
  return push != nullptr && push->record.incarnation > 0 ? std::optional(*push) : std::nullopt;
}

template <typename Read>
auto read_json(const storage::LogRecord& record, LogKind kind, const Read& read)
    -> std::optional<decltype(read(nlohmann::json()))> {
  if (!is_of(record, kind, 1)) return std::nullopt;
  try {
    return read(nlohmann::json::parse(record.parts[0]));
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

PushLog::PushLog(PushLogOptions options, const Layout& layout) : options_(std::move(options)), layout_(layout) {}

void PushLog::write_push(const CommittedPush& push) {
  append_push(*log_, push);
  failpoint("push-written");
}

void PushLog::write_update(const UpdateRecord& done) {
  nlohmann::json pushes = nlohmann::json::array();
  for (const PushRecord& record : done.update.pushes)
    pushes.push_back({static_cast<int>(record.worker), record.incarnation, record.sequence});
  append_text(
      *log_, LogKind::kUpdate,
      nlohmann::json{
          {"version", done.update.version}, {"lr", done.lr}, {"other_squares", done.other_squares}, {"pushes", pushes}}
          .dump());
  failpoint("update-written");
}

void PushLog::begin(const Weights& weights, const std::vector<CommittedPush>& waiting) {
  const auto write = [&](storage::RecordLog& log) {
    append_text(log, LogKind::kBegin,
                nlohmann::json{{"format", kFormat},
                               {"version", weights.version},
                               {"weights", digest_of(weights.tensors)},
                               {"layout", digest_of(layout_)},
                               {"run", options_.run},
                               {"agreement", options_.agreement}}
                    .dump());
    for (const CommittedPush& push : waiting) append_push(log, push);
    failpoint("log-begun");
  };
  log_ = begin_log(options_.folder, weights.version, options_.outlives, log_.get(), write);
}

std::optional<LogBegin> begin_in(const storage::LogRecord& record) {
  const auto begin = read_json(record, LogKind::kBegin, [](const nlohmann::json& json) {
    const bool is_known = json.at("format") == kFormat;
    return LogBegin{is_known ? json.at("version").get<std::int64_t>() : -1, json.at("weights"), json.at("layout"),
                    json.at("run"), json.at("agreement")};
  });
  return begin && begin->version >= 0 ? begin : std::nullopt;
}

std::optional<LogUpdate> update_in(const storage::LogRecord& record) {
  return read_json(record, LogKind::kUpdate, [](const nlohmann::json& json) {
    LogUpdate update{.version = json.at("version"), .lr = json.at("lr"), .other_squares = json.at("other_squares")};
    for (const auto& push : json.at("pushes"))
      update.pushes.push_back({WorkerId{push.at(0).get<int>()}, push.at(1), push.at(2)});
    return update;
  });
}

std::optional<PushKey> push_key_in(const storage::LogRecord& record) {
  const auto push = push_made_in(record);
  return push ? std::optional(push->record.key()) : std::nullopt;
}

std::optional<CommittedPush> push_in(const storage::LogRecord& record, const TensorsShape& shape) {
  const auto push = push_made_in(record);
  if (!push) return std::nullopt;
  Frames frames = frames_of(record);
  const auto samples = samples_after_header({frames[0], frames[1]});
  frames.erase(frames.begin() + 1);
  auto tensors = tensors_after_header(frames, shape);
  if (!tensors || !samples || samples->empty()) return std::nullopt;
  return CommittedPush{.push = {push->record, push->scores, push->times, std::move(*tensors)},
                       .epoch = samples->front(),
                       .samples = {samples->begin() + 1, samples->end()}};
}

std::string digest_of(const Tensors& tensors) {
  storage::Digester digester;
  const auto add = [&](const at::Tensor& flat) {
    digester.update({static_cast<const std::byte*>(flat.const_data_ptr()), flat.nbytes()});
  };
  for (const at::Tensor& shard : tensors.shards) add(shard);
  add(tensors.statistics);
  return digester.digest().xxh3_128;
}

std::string digest_of(const Layout& layout) { return storage::digest_text(text_of(layout)).xxh3_128; }

}  // namespace sluice::ps
