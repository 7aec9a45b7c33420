// schema: every configuration key, described once. Parsing, range errors, --set, the printed configuration and the
// documentation all come from this table, and so do the lists of keys that may differ, are learned from or are tuned.
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
  kDevices,
  kBytes,  // an integer, or a string with a unit
};

struct IntegerRange {  // inclusive; of each integer where the key holds several
  std::int64_t low = 0;
  std::int64_t high = 0;
};
struct RealRange {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;  // the end itself is not allowed; an infinite end never is
  bool high_open = false;
};
using Words = std::vector<std::string>;
using Limit = std::variant<std::monostate, IntegerRange, RealRange, Words>;

inline constexpr std::int64_t kNoLimit = 1'000'000'000;  // counts end here; documented as "no upper end"

// How a key reaches its member of Config.
struct Field {
  Kind kind;
  Value (*get)(const Config&);
  void (*set)(Config&, const Value&);  // Requires: a value that check_value() accepted
};

// What is true of a key besides its type and limit.
using Traits = std::uint8_t;
enum Trait : Traits {
  kHow = 1,             // another value learns the same: it says how, how long, or what is recorded
  kSource = 2,          // says which data are trained on, and where they are
  kPerProcess = 4,      // processes of a run may have different values
  kPerWorker = 8,       // so may workers of a parameter server
  kAfterRecovery = 16,  // may have changed when a server reads its log again
  kTuned = 32,          // `sluice tune` chooses it
};

struct Key {
  std::string_view name;  // "train.steps"
  Field field;
  Limit limit;
  std::string_view unit;  // empty when it has none
  std::string_view help;
  Traits traits = 0;

  [[nodiscard]] bool has(Trait trait) const { return (traits & trait) != 0; }
  [[nodiscard]] std::string_view table() const { return name.substr(0, name.find('.')); }
  [[nodiscard]] std::string_view leaf() const { return name.substr(name.find('.') + 1); }
};

// In the order of the documentation; the keys of a table are neighbours.
[[nodiscard]] std::span<const Key> schema();
[[nodiscard]] const Key* find_key(std::string_view name);
// False if there is no such key.
[[nodiscard]] bool has(std::string_view key, Trait trait);
[[nodiscard]] std::vector<std::string> table_names();

[[nodiscard]] std::string type_text(const Key& key);   // "an integer"
[[nodiscard]] std::string limit_text(const Key& key);  // "0 to 1024", "> 0", "one of sgd, adam"; empty when unlimited
[[nodiscard]] std::string default_text(const Key& key);
[[nodiscard]] std::string need_text(const Key& key);  // "train.lr needs a number, for example lr = 0.01"

// Errors: ConfigError for the wrong type (with an example) and for a value out of range (with the range).
void check_value(const Key& key, const Value& value);

}  // namespace sluice::config
