// schema: describes every configuration key once; all that lists, checks, prints or documents keys is derived from it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/config.h"
#include "config/value.h"

namespace sluice::config {

enum class Kind : std::uint8_t {
  kBool,
  kInteger,
  kReal,
  kString,
  kIntegerOrAuto,
  kIntegers,
  kIntegersOrAuto,  // at least one integer
  kStrings,
  kWordOrWords,
  kWordOrIntegers,  // a list has at least one integer, each at least 1
  kDevices,
  kBytes,  // an integer, or a string with a unit
};

struct IntegerRange {  // inclusive; for a list, applies to each integer
  std::int64_t low = 0;
  std::int64_t high = 0;
};
struct RealRange {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;  // excludes the end itself; an infinite end is never allowed
  bool high_open = false;
};
using Words = std::vector<std::string>;
using Limit = std::variant<std::monostate, IntegerRange, RealRange, Words>;

inline constexpr std::int64_t kNoLimit = 1'000'000'000;  // largest count; documented as no upper end

struct Field {
  Kind kind;
  Value (*get)(const Config&);
  void (*set)(Config&, const Value&);  // Requires: check_value() accepted the value
};

using Traits = std::uint8_t;
enum Trait : Traits {
  kHow = 1,             // does not change what is learned, only how, how long or what is recorded
  kSource = 2,          // determines the training data or its location
  kPerProcess = 4,      // may differ between processes of a run
  kPerWorker = 8,       // may differ between parameter-server workers
  kAfterRecovery = 16,  // may change before a server recovers from its log
  kTuned = 32,          // chosen by `sluice tune`
  kAdvanced = 64,       // hidden by `sluice config` while it has its default
};

struct Key {
  std::string_view name;
  Field field;
  Limit limit;
  std::string_view unit;
  std::string_view help;
  Traits traits = 0;
  std::string_view example = {};  // for messages, in TOML; only for lists of strings

  [[nodiscard]] bool has(Trait trait) const { return (traits & trait) != 0; }
  [[nodiscard]] std::string_view table() const { return name.substr(0, name.find('.')); }
  [[nodiscard]] std::string_view leaf() const { return name.substr(name.find('.') + 1); }
};

// All keys in documentation order; the keys of a table are contiguous.
[[nodiscard]] std::span<const Key> schema();
[[nodiscard]] const Key* find_key(std::string_view name);
[[nodiscard]] bool has(std::string_view key, Trait trait);
[[nodiscard]] std::vector<std::string> table_names();

[[nodiscard]] std::string type_text(const Key& key);
[[nodiscard]] std::string limit_text(const Key& key);  // "0 to 1024", "> 0", "one of sgd, adam"; empty if unlimited
[[nodiscard]] std::string default_text(const Key& key);
[[nodiscard]] std::string need_text(const Key& key);  // "train.lr needs a number, for example lr = 0.01"

// Errors: ConfigError for a wrong type (with an example) or a value out of range (with the range).
void check_value(const Key& key, const Value& value);

}  // namespace sluice::config
