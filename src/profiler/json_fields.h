// json_fields: one list of fields for both writing and reading a value as JSON. A type defines
//   template <typename Io> void fields(Io& io, Type& value) { io("name", value.name); ... }
// Numbers must be finite and non-negative (but model.dropout may be below 0); limits keep sums and products from
// overflowing. Errors: ConfigError with file, field and value.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/error.h"

namespace sluice::profiler {

inline constexpr std::uint64_t kMostWhole = std::uint64_t{1} << 50;
inline constexpr double kMostFraction = 1e9;  // except rates, "..per_s", which are unlimited

class JsonWriter {
 public:
  template <typename Value>
  void operator()(const char* name, Value& value) {
    object_[name] = write(value);
  }

  // A field added after its schema version; readers of that version ignore it. An empty value is not written.
  template <typename Value>
  void if_there(const char* name, Value& value) {
    (*this)(name, value);
  }
  template <typename Value>
  void if_there(const char* name, std::optional<Value>& value) {
    if (value) (*this)(name, *value);
  }

  template <typename Value>
  [[nodiscard]] static nlohmann::ordered_json object_of(Value& value) {
    JsonWriter writer;
    fields(writer, value);
    return std::move(writer.object_);
  }

 private:
  template <typename Value>
  static nlohmann::ordered_json write(Value& value) {
    if constexpr (requires { nlohmann::ordered_json(value); }) {
      return value;
    } else {
      return object_of(value);
    }
  }
  template <typename Value>
  static nlohmann::ordered_json write(std::optional<Value>& value) {
    return value ? write(*value) : nlohmann::ordered_json();
  }
  template <typename Value>
  static nlohmann::ordered_json write(std::vector<Value>& values) {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (Value& value : values) array.push_back(write(value));
    return array;
  }

  nlohmann::ordered_json object_ = nlohmann::ordered_json::object();
};

class JsonReader {
 public:
  // path: of the object in its file, for example "layers[2]"; empty for the whole.
  JsonReader(const nlohmann::ordered_json& object, std::string file, std::string path)
      : object_(object), file_(std::move(file)), path_(std::move(path)) {
    if (!object_.is_object()) refuse(path_.empty() ? "the whole" : path_, "should be an object");
  }

  template <typename Value>
  void operator()(const char* name, Value& value) {
    const std::string field = path_.empty() ? name : concat(path_, ".", name);
    const auto found = object_.find(name);
    if (found == object_.end()) refuse(field, "is missing");
    read(*found, field, value);
  }

  template <typename Value>
  void if_there(const char* name, Value& value) {
    if (object_.contains(name)) (*this)(name, value);
  }

  [[noreturn]] void refuse(const std::string& field, const std::string& what) const {
    throw ConfigError(file_, ": ", field, " ", what, "; measure again with `sluice profile CONFIG --out FILE`");
  }

 private:
  template <std::floating_point Number>
  void read(const nlohmann::ordered_json& json, const std::string& field, Number& value) const {
    if (!json.is_number() || !std::isfinite(json.get<double>()) ||
        (json.get<double>() < 0 && !field.ends_with("fingerprint.dropout")))
      refuse(field, concat("is ", json.dump(), ", but should be a number that is not negative"));
    value = json.get<double>();
    if (value > kMostFraction && !field.ends_with("per_s"))
      refuse(field, concat("is ", json.dump(), ", but should be at most ", kMostFraction));
  }
  template <std::integral Number>
  void read(const nlohmann::ordered_json& json, const std::string& field, Number& value) const {
    const bool fits = json.is_number_unsigned() && std::in_range<Number>(json.get<std::uint64_t>());
    if (!fits) refuse(field, concat("is ", json.dump(), ", but should be a whole number that is not negative"));
    if (json.get<std::uint64_t>() > kMostWhole)
      refuse(field, concat("is ", json.dump(), ", but should be at most ", kMostWhole));
    value = json.get<Number>();
  }
  void read(const nlohmann::ordered_json& json, const std::string& field, bool& value) const {
    if (!json.is_boolean()) refuse(field, concat("is ", json.dump(), ", but should be true or false"));
    value = json.get<bool>();
  }
  void read(const nlohmann::ordered_json& json, const std::string& field, std::string& value) const {
    if (!json.is_string()) refuse(field, concat("is ", json.dump(), ", but should be a text"));
    value = json.get<std::string>();
  }
  template <typename Value>
  void read(const nlohmann::ordered_json& json, const std::string& field, std::optional<Value>& value) const {
    value.reset();
    if (!json.is_null()) read(json, field, value.emplace());
  }
  template <typename Value>
  void read(const nlohmann::ordered_json& json, const std::string& field, std::vector<Value>& values) const {
    if (!json.is_array()) refuse(field, "should be a list");
    values.clear();
    for (std::size_t i = 0; i < json.size(); ++i) read(json[i], concat(field, "[", i, "]"), values.emplace_back());
  }
  template <typename Value>
  void read(const nlohmann::ordered_json& json, const std::string& field, Value& value) const {
    JsonReader reader(json, file_, field);
    fields(reader, value);
  }

  const nlohmann::ordered_json& object_;
  std::string file_;
  std::string path_;
};

}  // namespace sluice::profiler
