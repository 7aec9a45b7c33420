// field: connects a schema key to its member of Config. Internal to the schema (keys.h).
#pragma once

#include "config/schema.h"
#include "core/text.h"

namespace sluice::config::internal {

template <typename T>
struct Access;  // kKind, fetch(member) -> Value, store(member, accepted value)

template <typename Integer, Kind kOfKey = Kind::kInteger>
struct IntegerAccess {
  static constexpr Kind kKind = kOfKey;
  static Value fetch(const Integer& member) { return static_cast<std::int64_t>(member); }
  static void store(Integer& member, const Value& value) {
    member = static_cast<Integer>(std::get<std::int64_t>(value));
  }
};
template <>
struct Access<int> : IntegerAccess<int> {};
template <>
struct Access<std::int64_t> : IntegerAccess<std::int64_t> {};
template <>
struct Access<std::uint64_t> : IntegerAccess<std::uint64_t> {};

template <typename T, Kind kOfKey>
struct SameAccess {
  static constexpr Kind kKind = kOfKey;
  static Value fetch(const T& member) { return member; }
  static void store(T& member, const Value& value) { member = std::get<T>(value); }
};
template <>
struct Access<bool> : SameAccess<bool, Kind::kBool> {};
template <>
struct Access<std::string> : SameAccess<std::string, Kind::kString> {};
template <>
struct Access<std::vector<std::int64_t>> : SameAccess<std::vector<std::int64_t>, Kind::kIntegers> {};

template <>
struct Access<double> {
  static constexpr Kind kKind = Kind::kReal;
  static Value fetch(const double& member) { return member; }
  static void store(double& member, const Value& value) {
    const auto* integer = std::get_if<std::int64_t>(&value);
    member = integer != nullptr ? static_cast<double>(*integer) : std::get<double>(value);
  }
};

template <>
struct Access<std::optional<int>> {
  static constexpr Kind kKind = Kind::kIntegerOrAuto;
  static Value fetch(const std::optional<int>& member) {
    return member ? Value{std::int64_t{*member}} : Value{std::string("auto")};
  }
  static void store(std::optional<int>& member, const Value& value) {
    const auto* integer = std::get_if<std::int64_t>(&value);
    member = integer != nullptr ? std::optional(static_cast<int>(*integer)) : std::nullopt;
  }
};

template <>
struct Access<std::optional<std::vector<int>>> {
  static constexpr Kind kKind = Kind::kIntegersOrAuto;
  static Value fetch(const std::optional<std::vector<int>>& member) {
    if (!member) return std::string("auto");
    return std::vector<std::int64_t>(member->begin(), member->end());
  }
  static void store(std::optional<std::vector<int>>& member, const Value& value) {
    member.reset();
    if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value)) {
      member.emplace(integers->begin(), integers->end());
    }
  }
};

template <>
struct Access<std::vector<std::string>> {
  static constexpr Kind kKind = Kind::kStrings;
  static Value fetch(const std::vector<std::string>& member) { return member; }
  static void store(std::vector<std::string>& member, const Value& value) {
    const auto* strings = std::get_if<std::vector<std::string>>(&value);
    member = strings != nullptr ? *strings : std::vector<std::string>{};  // {} looks like integers
  }
};

// A member that holds one word for all or a list.
template <typename T, Kind kOfKey, std::string T::*kWord, std::vector<std::string> T::*kList>
struct WordOrListAccess {
  static constexpr Kind kKind = kOfKey;
  static Value fetch(const T& member) { return (member.*kList).empty() ? Value{member.*kWord} : Value{member.*kList}; }
  static void store(T& member, const Value& value) {
    const auto* word = std::get_if<std::string>(&value);
    member.*kWord = word != nullptr ? *word : std::string();
    member.*kList = word != nullptr ? std::vector<std::string>() : std::get<std::vector<std::string>>(value);
  }
};
template <>
struct Access<DeviceList> : WordOrListAccess<DeviceList, Kind::kDevices, &DeviceList::choice, &DeviceList::names> {};
template <>
struct Access<RecomputeChoice>
    : WordOrListAccess<RecomputeChoice, Kind::kWordOrWords, &RecomputeChoice::all, &RecomputeChoice::stages> {};

template <>
struct Access<ShareChoice> {
  static constexpr Kind kKind = Kind::kWordOrIntegers;
  static Value fetch(const ShareChoice& member) {
    if (member.list.empty()) return member.rule;
    return std::vector<std::int64_t>(member.list.begin(), member.list.end());
  }
  static void store(ShareChoice& member, const Value& value) {
    member = {.rule = "", .list = {}};
    if (const auto* word = std::get_if<std::string>(&value)) member.rule = *word;
    if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value))
      member.list.assign(integers->begin(), integers->end());
  }
};

template <>
struct Access<ByteCount> {
  static constexpr Kind kKind = Kind::kBytes;
  static Value fetch(const ByteCount& member) {
    const bool is_plain = member.bytes == 0 || member.bytes % 1024 != 0;
    return is_plain ? Value{member.bytes} : Value{exact_bytes(member.bytes)};
  }
  static void store(ByteCount& member, const Value& value) {
    const auto* integer = std::get_if<std::int64_t>(&value);
    member.bytes = integer != nullptr ? *integer : parse_bytes(std::get<std::string>(value)).value();
  }
};

// field<&Config::train, &TrainConfig::lr>()
template <auto kTable, auto kMember>
Field field() {
  using T = std::remove_cvref_t<decltype(std::declval<Config&>().*kTable.*kMember)>;
  return {Access<T>::kKind, [](const Config& config) { return Access<T>::fetch(config.*kTable.*kMember); },
          [](Config& config, const Value& value) { Access<T>::store(config.*kTable.*kMember, value); }};
}

}  // namespace sluice::config::internal
