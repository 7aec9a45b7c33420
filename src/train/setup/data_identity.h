// data_identity: how a run knows its data again: the number of samples of each split, and a digest of them. Compared
// between a checkpoint and the run that goes on from it (resume.h), and between the processes of a run (same_start.h).
// A digest is of what a sample is (kind, sizes, classes) and of samples with their targets, the first, the last and
// others evenly between: of a set that lies in memory as many as make 64 MiB, all of Fashion-MNIST's, else as many as
// make 1 MiB, at least two. It is no signature. Costs tens of milliseconds.
// Threads: one. Errors: those of Dataset::read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "data/dataset.h"

namespace sluice::train {

struct SplitIdentity {
  std::int64_t samples = 0;
  std::string digest;  // XXH3-128 in hexadecimal digits

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

// How the data `now` differ from those that a checkpoint was made with, as the beginning of a sentence; nothing where
// they do not. what: "training samples". name: of the data set.
[[nodiscard]] std::optional<std::string> difference(const SplitIdentity& now, const SplitIdentity& then,
                                                    const std::string& what, const std::string& name);

}  // namespace sluice::train
