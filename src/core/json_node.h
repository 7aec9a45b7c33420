// json_node: a JSON value with its path in the file, for error messages.
// Errors: DataError for what is missing or has another type.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice {

class JsonNode {
 public:
  // where: "FILE" or "FILE: model.vocab".
  JsonNode(const nlohmann::json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  [[nodiscard]] const nlohmann::json& value() const { return *value_; }
  [[nodiscard]] const std::string& where() const { return where_; }

  [[nodiscard]] bool has(std::string_view key) const {
    require(value_->is_object(), "an object");
    const auto found = value_->find(key);
    return found != value_->end() && !found->is_null();
  }
  [[nodiscard]] JsonNode at(std::string_view key) const {
    require(value_->is_object(), "an object");
    const auto found = value_->find(key);
    if (found == value_->end()) throw DataError(where_, ": \"", printable(key), "\" is missing");
    return {*found, concat(where_, is_root_ ? ": " : ".", printable(key)), false};
  }
  [[nodiscard]] std::vector<JsonNode> items() const {
    require(value_->is_array(), "a list");
    std::vector<JsonNode> nodes;
    for (const auto& item : *value_) nodes.push_back({item, concat(where_, "[", nodes.size(), "]"), false});
    return nodes;
  }

  [[nodiscard]] std::string text() const {
    require(value_->is_string(), "a text");
    return value_->get<std::string>();
  }
  [[nodiscard]] bool flag() const {
    require(value_->is_boolean(), "true or false");
    return value_->get<bool>();
  }
  [[nodiscard]] std::int32_t number() const {
    require(value_->is_number_integer(), "a whole number");
    require(value_->get<std::int64_t>() >> 31 == 0, "a number from 0 to 2147483647");
    return value_->get<std::int32_t>();
  }
  [[nodiscard]] std::string text(std::string_view key) const { return at(key).text(); }
  [[nodiscard]] bool flag(std::string_view key) const { return at(key).flag(); }
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const { return has(key) ? at(key).flag() : otherwise; }
  [[nodiscard]] std::int32_t number(std::string_view key) const { return at(key).number(); }

  // Name of a component.
  [[nodiscard]] std::string type() const { return text("type"); }
  [[noreturn]] void reject_type() const {
    throw ConfigError(where_, ": \"", printable(type()),
                      "\" is not supported; docs/reference/tokenizers.md lists what is");
  }
  [[noreturn]] void reject(std::string_view expected) const {
    throw DataError(where_, ": expected ", expected, ", found ", first_bytes());
  }
  void require(bool ok, std::string_view expected) const {
    if (!ok) reject(expected);
  }

 private:
  JsonNode(const nlohmann::json& value, std::string where, bool is_root)
      : value_(&value), where_(std::move(where)), is_root_(is_root) {}

  [[nodiscard]] std::string first_bytes() const {
    constexpr std::size_t kMost = 60;
    if (value_->is_structured()) return concat(value_->is_array() ? "a list" : "an object", " of ", value_->size());
    const std::string shown = value_->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    return printable(shown.size() <= kMost ? shown : shown.substr(0, kMost) + "...");
  }

  const nlohmann::json* value_;
  std::string where_;
  bool is_root_ = true;
};

}  // namespace sluice
