#include "ps/net/messages.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "ps/net/message_json.h"

namespace sluice::ps {
namespace wire {

SLUICE_FIELDS(PushScores, "scores", field("loss_sum", self.loss_sum), field("sums", self.sums));
SLUICE_FIELDS(PushTimes, "times", field("compute_s", self.compute_s), field("stall_s", self.stall_s),
              field("send_s", self.send_s), field("idle_s", self.idle_s));
SLUICE_FIELDS(Incarnation, "life", field("life", self.number), field("reign", self.server_epoch));
SLUICE_FIELDS(Hello, "hello", field("protocol", self.protocol), field("worker", self.worker),
              field("session", self.process_id), field("where", self.where), field("batch", self.batch),
              field("gives_up", self.abandons), field("agreement", self.agreement));
SLUICE_FIELDS(PushMade, "push", field("record", self.record), field("scores", self.scores), field("times", self.times),
              field("lease", self.lease), field("is_ahead", self.is_ahead));
SLUICE_FIELDS(PushSent, "sent", field("sequence", self.sequence), field("send_s", self.send_s));
SLUICE_FIELDS(WorkerHeartbeat, "beat", field("pushed", self.pushed));
SLUICE_FIELDS(WorkerAgain, "again", field("lease", self.lease), field("version", self.version));
SLUICE_FIELDS(Leaving, "leaving", (void)0);
SLUICE_FIELDS(Failed, "failed", field("code", self.code), field("what", self.what));

SLUICE_FIELDS(Welcome, "welcome", field("life", self.incarnation.number), field("version", self.version),
              field("taken", self.last_committed), field("run", self.run), field("layout", self.layout),
              field("reign", self.incarnation.server_epoch), field("gave_up", self.abandoned),
              field("constants", self.constants));
SLUICE_FIELDS(Refusal, "refusal", field("what", self.what));
SLUICE_FIELDS(Busy, "busy", field("where", self.where));
SLUICE_FIELDS(Who, "who", (void)0);
SLUICE_FIELDS(LeaseGiven, "lease", field("id", self.id), field("epoch", self.epoch));
SLUICE_FIELDS(WeightsGiven, "weights", field("version", self.version), field("sequence", self.sequence),
              field("is_whole", self.is_whole));
SLUICE_FIELDS(PushAnswered, "answer", field("sequence", self.sequence), field("answer", self.answer));
SLUICE_FIELDS(ServerHeartbeat, "beat", field("lease", self.lease), field("version", self.version),
              field("of", self.of));
SLUICE_FIELDS(ServerAgain, "again", (void)0);
SLUICE_FIELDS(Over, "over", field("code", self.code), field("what", self.what));

}  // namespace wire

// --- Checks beyond the fields' types: impossible numbers, and numbers whose sums could overflow

static constexpr std::int64_t kMostCounted = std::int64_t{1} << 48;

static bool is_count(std::int64_t number) { return number >= 0 && number <= kMostCounted; }
static bool is_time(double seconds) { return seconds >= 0 && std::isfinite(seconds); }

static bool is_sound(const Incarnation& incarnation) {
  return incarnation.number >= 0 && std::in_range<int>(incarnation.number) && incarnation.server_epoch >= 0;
}
static bool is_sound(const Hello& hello) {  // limits what the server stores of it
  constexpr std::size_t kLongest = 1024;
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' '; };  // would begin a line in the log
  return !hello.process_id.empty() && hello.process_id.size() <= kLongest && hello.where.size() <= kLongest &&
         is_sound(hello.abandons) && std::ranges::none_of(hello.where, is_control);
}
bool is_sound(const PushAhead& ahead) {
  const auto is_span = [](const ShardSpan& span) { return is_count(span.offset) && span.elements > 0; };
  return ahead.push.incarnation >= 1 && ahead.push.sequence >= 1 && ahead.lease >= 0 && ahead.shard >= 0 &&
         std::ranges::all_of(ahead.spans, is_span);
}
static bool is_sound(const PushTimes& times) {
  return is_time(times.compute_s) && is_time(times.stall_s) && is_time(times.send_s) && is_time(times.idle_s);
}
static bool is_sound(const PushScores& scores) {
  constexpr std::size_t kMostScores = 64;
  const auto is_sum = [](double sum) { return std::abs(sum) <= static_cast<double>(kMostCounted); };
  return scores.sums.size() <= kMostScores && std::ranges::all_of(scores.sums, is_sum);
}
static bool is_sound(const PushMade& push) {
  const PushRecord& record = push.record;
  return record.incarnation >= 1 && record.sequence >= 1 && record.base_version >= 0 && is_count(record.examples) &&
         is_count(record.targets) && is_count(record.local_steps) && record.factor > 0 && push.lease >= 0 &&
         is_sound(push.scores) && is_sound(push.times);
}
static bool is_sound(const PushSent& sent) { return sent.sequence >= 1 && is_time(sent.send_s); }
static bool is_sound(const WorkerHeartbeat& heartbeat) { return heartbeat.pushed >= 0; }
static bool is_sound(const WorkerAgain& again) { return again.lease >= kNone && again.version >= kNone; }

static bool is_sound(const Welcome& welcome) {
  return welcome.incarnation.number >= 1 && is_sound(welcome.incarnation) && welcome.version >= 0 &&
         welcome.last_committed >= 0 && is_sound(welcome.abandoned) && is_sound(welcome.layout);
}
static bool is_sound(const LeaseGiven& given) { return given.id >= 0 && given.epoch >= 0; }
static bool is_sound(const WeightsGiven& given) { return given.version >= 0 && given.sequence >= 1; }
static bool is_sound(const ServerHeartbeat& heartbeat) {
  return heartbeat.lease >= kNone && heartbeat.version >= kNone && is_sound(heartbeat.of);
}

// A parsed header takes many times the memory of its bytes.
static constexpr std::size_t kLongestOfWorker = std::size_t{1} << 20, kLongestOfServer = std::size_t{1} << 26;

std::string difference_between(const Party& theirs, const Party& mine) {
  // A configuration key is named first, because it may be the cause of different samples.
  const auto keys_of = [](comm::Agreement agreement) {
    std::erase_if(agreement, [](const auto& entry) { return entry.first.starts_with("the digest of "); });
    return agreement;
  };
  auto found = comm::first_disagreement(keys_of(mine.agreement), keys_of(theirs.agreement));
  if (!found) found = comm::first_disagreement(mine.agreement, theirs.agreement);
  if (!found) return {};
  return concat(found->key, " is ", found->other, " at ", theirs.name, ", but ", found->one, " at ", mine.name,
                "; make them equal");
}

void throw_if_failed(const Over& over) {
  if (over.what.empty()) return;
  const std::string what = concat("the server has ended the run: ", over.what);
  if (over.code == static_cast<std::int64_t>(ExitCode::kInterrupted)) throw InterruptedError(what);
  if (over.code == static_cast<std::int64_t>(ExitCode::kDiverged)) throw DivergedError(what);
  throw PeerError(what);
}

std::string text_of(const Layout& layout) {
  return wire::written(layout).dump(-1, ' ', false, wire::Json::error_handler_t::replace);
}

Frame header_of(const FromWorker& message) { return wire::write_header(message); }
Frame header_of(const FromServer& message) { return wire::write_header(message); }
std::optional<FromWorker> from_worker(const Frame& header) {
  return wire::read_header<FromWorker>(header, kLongestOfWorker);
}
std::optional<FromServer> from_server(const Frame& header) {
  return wire::read_header<FromServer>(header, kLongestOfServer);
}

FrameSocket::Limits limits_for(const TensorsShape& shape, const Compression& pushed, std::optional<int> given_states) {
  std::int64_t bytes = std::max(packed_bytes({}, shape.dtype, shape.statistics), FrameSocket::Limits{}.frame_bytes);
  for (const std::int64_t elements : shape.shards) {
    bytes = std::max(bytes, packed_bytes(pushed, shape.dtype, elements));
    if (given_states) bytes = std::max(bytes, packed_bytes({}, shape.dtype, elements));
  }
  const auto states = static_cast<std::size_t>(given_states.value_or(0));
  return {.frame_bytes = bytes, .frames = shape.shards.size() * (states + 1) + 2};
}

Frames with_tensors(Frame header, const Tensors& tensors) {
  Frames frames{std::move(header)};
  for (const at::Tensor& shard : tensors.shards) frames.push_back(frame_of(shard));
  frames.push_back(frame_of(tensors.statistics));
  return frames;
}

std::optional<Tensors> tensors_after_header(const Frames& frames, const TensorsShape& shape) {
  if (frames.size() != shape.shards.size() + 2) return std::nullopt;
  Tensors tensors;
  for (std::size_t s = 0; s < shape.shards.size(); ++s) {
    auto shard = tensor_of(frames[s + 1], shape.dtype, shape.shards[s]);
    if (!shard) return std::nullopt;
    tensors.shards.push_back(std::move(*shard));
  }
  auto statistics = tensor_of(frames.back(), shape.dtype, shape.statistics);
  if (!statistics) return std::nullopt;
  tensors.statistics = std::move(*statistics);
  return tensors;
}

Frames with_packed(Frame header, const Packed& packed) {
  return with_tensors(std::move(header), {packed.shards, packed.statistics});
}

// unpack() checks the length of each shard.
std::optional<Packed> packed_after_header(const Frames& frames, const TensorsShape& shape) {
  if (frames.size() != shape.shards.size() + 2) return std::nullopt;
  Packed packed;
  for (std::size_t s = 0; s < shape.shards.size(); ++s)
    packed.shards.push_back(
        *tensor_of(frames[s + 1], at::kByte, static_cast<std::int64_t>(frames[s + 1].bytes.size())));
  auto statistics = tensor_of(frames.back(), shape.dtype, shape.statistics);
  if (!statistics) return std::nullopt;
  packed.statistics = std::move(*statistics);
  return packed;
}

PackedWeights weights_after_header(const Frames& frames, const TensorsShape& shape, std::int64_t sequence,
                                   bool is_whole) {
  auto packed = packed_after_header(frames, shape);
  return {.sequence = sequence, .is_whole = is_whole, .packed = packed ? std::move(*packed) : Packed{}};
}

Frames with_samples(Frame header, const std::vector<std::int64_t>& samples) {
  return {std::move(header), frame_of(at::tensor(samples, at::kLong))};
}

std::optional<std::vector<std::int64_t>> samples_after_header(const Frames& frames) {
  if (frames.size() != 2) return std::nullopt;
  const auto count = static_cast<std::int64_t>(frames[1].bytes.size() / sizeof(std::int64_t));
  const auto samples = tensor_of(frames[1], at::kLong, count);
  if (!samples) return std::nullopt;
  const auto* const first = static_cast<const std::int64_t*>(samples->const_data_ptr());
  return std::vector<std::int64_t>(first, first + count);
}

}  // namespace sluice::ps
