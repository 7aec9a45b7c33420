// message_json: strict conversion between message headers and JSON. A message with a missing, mistyped or out-of-range
// field is rejected. The .cpp files that define messages list the fields of each in SLUICE_FIELDS(). Further conditions
// go into is_sound(const Message&) in namespace sluice::ps.
// Errors: Malformed, internal.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <c10/core/ScalarType.h>
#include <nlohmann/json.hpp>

#include "comm/start.h"
#include "ps/layout.h"
#include "ps/net/frames.h"
#include "ps/net/messages.h"
#include "ps/push.h"

namespace sluice::ps::wire {

using Json = nlohmann::json;

struct Malformed : std::runtime_error {
  Malformed() : std::runtime_error("malformed") {}
};

inline void require(bool condition) {
  if (!condition) throw Malformed();
}

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

SLUICE_FIELDS(PushRecord, "record", field("worker", self.worker), field("life", self.incarnation),
              field("sequence", self.sequence), field("base_version", self.base_version),
              field("examples", self.examples), field("targets", self.targets), field("local_steps", self.local_steps),
              field("factor", self.factor), field("payload", self.payload));
SLUICE_FIELDS(PushKey, "key", field("worker", self.worker), field("life", self.incarnation),
              field("sequence", self.sequence));
SLUICE_FIELDS(ShardSpan, "span", field("offset", self.offset), field("elements", self.elements));
SLUICE_FIELDS(PushAhead, "ahead", field("push", self.push), field("lease", self.lease), field("shard", self.shard),
              field("spans", self.spans), field("reign", self.server_epoch));
SLUICE_FIELDS(Piece, "piece", field("parameter", self.parameter), field("begin", self.begin), field("end", self.end),
              field("offset", self.offset));
SLUICE_FIELDS(Shard, "shard", field("pieces", self.pieces), field("elements", self.elements));
SLUICE_FIELDS(Parameter, "parameter", field("name", self.name), field("sizes", self.sizes),
              field("strides", self.strides));
SLUICE_FIELDS(Layout, "layout", field("dtype", self.dtype), field("parameters", self.parameters),
              field("statistics", self.statistics), field("shards", self.shards));

template <typename T>
concept Listed = !std::same_as<T, std::string> && !std::same_as<T, comm::Agreement> && requires {
  typename T::value_type;
};

constexpr int count_of_values(PushAnswer) { return static_cast<int>(PushAnswer::kRefused) + 1; }
constexpr int count_of_values(Payload) { return static_cast<int>(Payload::kDelta) + 1; }
constexpr int count_of_values(at::ScalarType) { return static_cast<int>(at::ScalarType::NumOptions); }
constexpr int count_of_values(WorkerId) { return std::numeric_limits<int>::max(); }

template <typename T>
Json written(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<int>(value);
  } else if constexpr (std::same_as<T, NamedSize>) {
    return Json::array({value.first, value.second});
  } else if constexpr (requires { Fields<T>::kName; }) {
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

// --- Reading: numbers of another kind are not rounded, and every field must be present

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
    require(number >= 0 && number < count_of_values(T{}));
    return static_cast<T>(number);
  } else if constexpr (std::integral<T>) {
    return read_integer<T>(json);
  } else if constexpr (std::floating_point<T>) {
    require(json.is_number());
    return json.get<T>();
  } else if constexpr (std::same_as<T, NamedSize>) {
    require(json.is_array() && json.size() == 2);
    return {read<std::string>(json[0]), read_integer<std::int64_t>(json[1])};
  } else if constexpr (requires { Fields<T>::kName; }) {
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

template <typename T>
T read_message(const Json& json) {
  T message = read_fields<T>(json);
  if constexpr (requires { is_sound(message); }) require(is_sound(message));
  return message;
}

template <typename Variant>
Frame write_header(const Variant& message) {
  return std::visit(
      [](const auto& of_kind) {
        Json json = written(of_kind);
        json["say"] = Fields<std::decay_t<decltype(of_kind)>>::kName;
        // Text from other machines, such as a host's name, may not be UTF-8.
        return frame_of(json.dump(-1, ' ', false, Json::error_handler_t::replace));
      },
      message);
}

template <typename Variant, std::size_t kind = 0>
std::optional<Variant> read_kind(const std::string& name, const Json& json) {
  if constexpr (kind == std::variant_size_v<Variant>) {
    return std::nullopt;
  } else {
    using T = std::variant_alternative_t<kind, Variant>;
    return name == Fields<T>::kName ? Variant{read_message<T>(json)} : read_kind<Variant, kind + 1>(name, json);
  }
}

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

}  // namespace sluice::ps::wire
