// data_identity: sizes and sample digests that identify a run's data, compared on resume (resume.h) and between
// processes (same_start.h). A digest covers evenly spaced samples: up to 64 MiB of a set in memory, else up to 1 MiB,
// at least two. It detects mistakes, not manipulation. Cost: tens of milliseconds. Threads: one. Errors: those of
// Dataset::read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "data/dataset.h"

namespace sluice::train {

struct SplitIdentity {
  std::int64_t samples = 0;
  std::string digest;  // XXH3-128, hexadecimal

  bool operator==(const SplitIdentity&) const = default;
};

struct DataIdentity {
  SplitIdentity train;
  SplitIdentity test;

  bool operator==(const DataIdentity&) const = default;
  [[nodiscard]] nlohmann::json to_json() const;
  [[nodiscard]] static DataIdentity from_json(const nlohmann::json& json);  // throws nlohmann::json::exception
};

[[nodiscard]] SplitIdentity identity_of(const data::Dataset& dataset);
[[nodiscard]] DataIdentity identity_of(const data::Dataset& train, const data::Dataset& test);

// Returns the beginning of a sentence; nullopt if they are equal. what: "training samples". name: the data set's.
[[nodiscard]] std::optional<std::string> difference(const SplitIdentity& now, const SplitIdentity& then,
                                                    const std::string& what, const std::string& name);

}  // namespace sluice::train
