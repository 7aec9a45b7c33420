// longest_rows: limits a table for metrics.jsonl to its longest rows and the total time of the others. A value.
#pragma once

#include <cstddef>

#include <nlohmann/json.hpp>

#include "core/clock.h"

namespace sluice::train {

class LongestRows {
 public:
  // Requires: rows in order of falling time.
  void add(nlohmann::ordered_json row, Nanoseconds time) {
    constexpr std::size_t kMost = 1000;
    if (rows_.size() < kMost) {
      rows_.push_back(std::move(row));
    } else {
      rest_ += time;
    }
  }
  [[nodiscard]] const nlohmann::ordered_json& rows() const { return rows_; }
  [[nodiscard]] double rest_ms() const { return to_ms(rest_); }

 private:
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
  Nanoseconds rest_ = 0;
};

}  // namespace sluice::train
