#include "ps/net/messages.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

namespace sluice::ps {
namespace {

using Json = nlohmann::json;

// What a message cannot be read for.
struct Malformed : std::runtime_error {
  Malformed() : std::runtime_error("malformed") {}
};

void require(bool condition) {
  if (!condition) throw Malformed();
}

// --- The fields of each message, in one place for writing and reading.

template <typename T>
struct Fields;

#define SLUICE_FIELDS(Type, name, ...)                                                    \
  template <>                                                                             \
  struct Fields<Type> {                                                                   \
    static constexpr const char* kName = name;                                            \
    template <typename Self, typename Visit>                                              \
    static void visit([[maybe_unused]] Self& self, [[maybe_unused]] const Visit& field) { \
      __VA_ARGS__;                                                                        \
    }                                                                                     \
  }

SLUICE_FIELDS(PushRecord, "record", field("worker", self.worker), field("life", self.life),
              field("sequence", self.sequence), field("base_version", self.base_version),
              field("examples", self.examples), field("targets", self.targets), field("local_steps", self.local_steps),
              field("factor", self.factor), field("payload", self.payload));
SLUICE_FIELDS(PushScores, "scores", field("loss_sum", self.loss_sum), field("top1", self.top1),
              field("top5", self.top5));
SLUICE_FIELDS(PushTimes, "times", field("compute_s", self.compute_s), field("stall_s", self.stall_s),
              field("send_s", self.send_s), field("idle_s", self.idle_s));
SLUICE_FIELDS(Piece, "piece", field("parameter", self.parameter), field("begin", self.begin), field("end", self.end),
              field("offset", self.offset));
SLUICE_FIELDS(Shard, "shard", field("pieces", self.pieces), field("elements", self.elements));
SLUICE_FIELDS(Parameter, "parameter", field("name", self.name), field("sizes", self.sizes),
              field("strides", self.strides));
SLUICE_FIELDS(Layout, "layout", field("dtype", self.dtype), field("parameters", self.parameters),
              field("statistics", self.statistics), field("shards", self.shards));

SLUICE_FIELDS(Hello, "hello", field("protocol", self.protocol), field("worker", self.worker),
              field("session", self.session), field("where", self.where), field("batch", self.batch),
              field("is_anew", self.is_anew), field("agreement", self.agreement));
SLUICE_FIELDS(PushMade, "push", field("record", self.record), field("scores", self.scores), field("times", self.times),
              field("lease", self.lease));
SLUICE_FIELDS(PushSent, "sent", field("sequence", self.sequence), field("send_s", self.send_s));
SLUICE_FIELDS(WorkerBeat, "beat", field("pushed", self.pushed));
SLUICE_FIELDS(WorkerAgain, "again", field("lease", self.lease), field("version", self.version));
SLUICE_FIELDS(Leaving, "leaving", (void)0);
SLUICE_FIELDS(Failed, "failed", field("code", self.code), field("what", self.what));

SLUICE_FIELDS(Welcome, "welcome", field("life", self.life), field("version", self.version),
              field("layout", self.layout));
SLUICE_FIELDS(Refusal, "refusal", field("what", self.what));
SLUICE_FIELDS(Busy, "busy", field("where", self.where));
SLUICE_FIELDS(Who, "who", (void)0);
SLUICE_FIELDS(LeaseGiven, "lease", field("id", self.id), field("epoch", self.epoch));
SLUICE_FIELDS(WeightsGiven, "weights", field("version", self.version));
SLUICE_FIELDS(PushAnswered, "answer", field("sequence", self.sequence), field("answer", self.answer));
SLUICE_FIELDS(ServerBeat, "beat", field("lease", self.lease), field("version", self.version));
SLUICE_FIELDS(ServerAgain, "again", (void)0);
SLUICE_FIELDS(Over, "over", field("code", self.code), field("what", self.what));
#undef SLUICE_FIELDS

template <typename T>
concept HasFields = requires {
  Fields<T>::kName;
};
template <typename T>
concept Listed = requires(T list) {
  typename T::value_type;
}
&&!std::same_as<T, std::string> && !std::same_as<T, comm::Agreement>;

// How many of its values an enumeration has, from 0.
constexpr int values_of(PushAnswer) { return static_cast<int>(PushAnswer::kRefused) + 1; }
constexpr int values_of(Payload) { return static_cast<int>(Payload::kDelta) + 1; }
constexpr int values_of(at::ScalarType) { return static_cast<int>(at::ScalarType::NumOptions); }
constexpr int values_of(WorkerId) { return std::numeric_limits<int>::max(); }

// --- Writing.

template <typename T>
Json written(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<int>(value);
  } else if constexpr (std::same_as<T, NamedSize>) {
    return Json::array({value.first, value.second});
  } else if constexpr (HasFields<T>) {
    Json json = Json::object();
    Fields<T>::visit(value, [&](const char* name, const auto& member) { json[name] = written(member); });
    return json;
  } else if constexpr (Listed<T>) {
    Json json = Json::array();
    for (const auto& element : value) json.push_back(written(element));
    return json;
  } else {
    return value;
  }
}

// --- Reading. Numbers of another kind are not rounded, and nothing is left at its default.

template <typename T>
T read(const Json& json);

template <typename T>
T read_fields(const Json& json) {
  require(json.is_object());
  T value;
  Fields<T>::visit(value, [&](const char* name, auto& member) {
    const auto found = json.find(name);
    require(found != json.end());
    member = read<std::remove_reference_t<decltype(member)>>(*found);
  });
  return value;
}

template <std::integral T>
T read_integer(const Json& json) {
  if constexpr (std::same_as<T, bool>) {
    require(json.is_boolean());
    return json.get<bool>();
  } else {
    require(json.is_number_integer());
    const bool is_large = json.is_number_unsigned() && json.get<std::uint64_t>() > std::uint64_t{1} << 62;
    require(!is_large && std::in_range<T>(json.get<std::int64_t>()));
    return static_cast<T>(json.get<std::int64_t>());
  }
}

template <typename T>
T read(const Json& json) {
  if constexpr (std::is_enum_v<T>) {
    const int number = read_integer<int>(json);
    require(number >= 0 && number < values_of(T{}));
    return static_cast<T>(number);
  } else if constexpr (std::integral<T>) {
    return read_integer<T>(json);
  } else if constexpr (std::floating_point<T>) {
    require(json.is_number());
    return json.get<T>();
  } else if constexpr (std::same_as<T, NamedSize>) {
    require(json.is_array() && json.size() == 2);
    return {read<std::string>(json[0]), read_integer<std::int64_t>(json[1])};
  } else if constexpr (HasFields<T>) {
    return read_fields<T>(json);
  } else if constexpr (Listed<T>) {
    require(json.is_array());
    T list;
    for (const Json& element : json) list.push_back(read<typename T::value_type>(element));
    return list;
  } else if constexpr (std::same_as<T, comm::Agreement>) {
    require(json.is_object());
    T agreement;
    for (const auto& [name, value] : json.items()) agreement[name] = read<std::string>(value);
    return agreement;
  } else {
    require(json.is_string());
    return json.get<T>();
  }
}

// --- What no field shows by its kind: numbers that cannot be, or whose sums could not be counted any more.

constexpr std::int64_t kMostCounted = std::int64_t{1} << 48;

bool is_count(std::int64_t number) { return number >= 0 && number <= kMostCounted; }

bool is_sound(const Hello& hello) {  // what is kept of it is short
  constexpr std::size_t kLongest = 1024;
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' '; };  // would begin a line in the log
  return !hello.session.empty() && hello.session.size() <= kLongest && hello.where.size() <= kLongest &&
         std::ranges::none_of(hello.where, is_control);
}
bool is_sound(const PushMade& push) {
  const PushRecord& record = push.record;
  return record.life >= 1 && record.sequence >= 1 && record.base_version >= 0 && is_count(record.examples) &&
         is_count(record.targets) && is_count(record.local_steps) && record.factor > 0 && push.lease >= 0 &&
         is_count(push.scores.top1) && is_count(push.scores.top5);
}
bool is_sound(const PushSent& sent) { return sent.sequence >= 1; }
bool is_sound(const WorkerBeat& beat) { return beat.pushed >= 0; }
bool is_sound(const WorkerAgain& again) { return again.lease >= kNone && again.version >= kNone; }

bool is_sound(const Welcome& welcome) {
  return welcome.life >= 1 && std::in_range<int>(welcome.life) && welcome.version >= 0 && is_sound(welcome.layout);
}
bool is_sound(const LeaseGiven& given) { return given.id >= 0 && given.epoch >= 0; }
bool is_sound(const WeightsGiven& given) { return given.version >= 0; }
bool is_sound(const ServerBeat& beat) { return beat.lease >= kNone && beat.version >= kNone; }

template <typename T>
concept Judged = requires(const T& message) {
  is_sound(message);
};

template <typename T>
T read_message(const Json& json) {
  T message = read_fields<T>(json);
  if constexpr (Judged<T>) require(is_sound(message));
  return message;
}

template <typename Variant>
Frame write_header(const Variant& message) {
  return std::visit(
      [](const auto& of_kind) {
        Json json = written(of_kind);
        json["say"] = Fields<std::decay_t<decltype(of_kind)>>::kName;
        // Text of other people, such as a host's name, may be no UTF-8.
        return frame_of(json.dump(-1, ' ', false, Json::error_handler_t::replace));
      },
      message);
}

template <typename Variant, std::size_t kind = 0>
std::optional<Variant> read_kind(const std::string& say, const Json& json) {
  if constexpr (kind == std::variant_size_v<Variant>) {
    return std::nullopt;
  } else {
    using T = std::variant_alternative_t<kind, Variant>;
    return say == Fields<T>::kName ? Variant{read_message<T>(json)} : read_kind<Variant, kind + 1>(say, json);
  }
}

// Read, a header takes many times as much memory as its bytes.
constexpr std::size_t kLongestOfWorker = std::size_t{1} << 20, kLongestOfServer = std::size_t{1} << 26;

template <typename Variant>
std::optional<Variant> read_header(const Frame& header, std::size_t longest) {
  if (header.bytes.size() > longest) return std::nullopt;
  const Json json = Json::parse(header.bytes, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("say") || !json["say"].is_string()) return std::nullopt;
  try {
    return read_kind<Variant>(json["say"].get<std::string>(), json);
  } catch (const Malformed&) {
    return std::nullopt;
  }
}

}  // namespace

Frame header_of(const FromWorker& message) { return write_header(message); }
Frame header_of(const FromServer& message) { return write_header(message); }
std::optional<FromWorker> from_worker(const Frame& header) { return read_header<FromWorker>(header, kLongestOfWorker); }
std::optional<FromServer> from_server(const Frame& header) { return read_header<FromServer>(header, kLongestOfServer); }

Frames with_tensors(Frame header, const Tensors& tensors) {
  Frames frames{std::move(header)};
  for (const at::Tensor& shard : tensors.shards) frames.push_back(frame_of(shard));
  frames.push_back(frame_of(tensors.statistics));
  return frames;
}

std::optional<Tensors> tensors_after_header(const Frames& frames, const Layout& layout) {
  if (frames.size() != layout.shards.size() + 2) return std::nullopt;
  Tensors tensors;
  for (std::size_t s = 0; s < layout.shards.size(); ++s) {
    auto shard = tensor_of(frames[s + 1], layout.dtype, layout.shards[s].elements);
    if (!shard) return std::nullopt;
    tensors.shards.push_back(std::move(*shard));
  }
  auto statistics = tensor_of(frames.back(), layout.dtype, layout.statistics_elements());
  if (!statistics) return std::nullopt;
  tensors.statistics = std::move(*statistics);
  return tensors;
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
