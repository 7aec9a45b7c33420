#include "train/setup/data_identity.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "data/squad_dataset.h"
#include "storage/checksum.h"

namespace sluice::train {
namespace {

constexpr std::int64_t kBytesInMemory = std::int64_t{64} << 20;
constexpr std::int64_t kFilesRead = 64;
constexpr std::int64_t kBytesMade = std::int64_t{1} << 20;  // for generated or decoded samples

template <typename T>
void feed(storage::Digester& digester, const std::vector<T>& values) {
  digester.update(std::as_bytes(std::span(values)));
}

// Leaves out the folder, which may differ between processes.
void feed_files(storage::Digester& digester, const data::Dataset& dataset) {
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    const std::string name = std::filesystem::path(dataset.file_of(i)).filename();
    const std::string line = concat(dataset.target(i), " ", name, "\n");
    digester.update(std::as_bytes(std::span(line)));
  }
}

// Samples show only the first answer, but scores count all.
void feed(storage::Digester& digester, const data::QuestionSet& set) {
  for (const data::Question& question : set.file().questions) {
    const std::string line = concat(question.id, "\n", join(question.answers, "\n"), "\n");
    digester.update(std::as_bytes(std::span(line)));
  }
}

// Returns nothing for an unreadable picture: data.broken decides later whether it ends the run.
std::vector<std::uint8_t> bytes_of_picture(const data::Dataset& dataset, std::int64_t index) {
  try {
    return dataset.encoded(index);
  } catch (const DataError&) {
    return {};
  }
}

std::vector<std::uint8_t> bytes_of_fields(const data::Dataset& dataset, std::int64_t index) {
  std::vector<std::uint8_t> bytes;
  for (const auto& [name, field] : dataset.read_fields({&index, 1})) {
    const auto* const values = static_cast<const std::uint8_t*>(field.const_data_ptr());
    bytes.insert(bytes.end(), values, values + field.nbytes());
  }
  return bytes;
}

std::int64_t samples_to_read(const data::Dataset& dataset) {
  if (dataset.info().is_encoded) return std::min(kFilesRead, dataset.size());
  const std::int64_t bytes = dataset.is_in_memory() ? kBytesInMemory : kBytesMade;
  const std::int64_t wanted = bytes / std::max<std::int64_t>(dataset.info().sample_bytes(), 1);
  return std::min(std::max<std::int64_t>(wanted, 2), dataset.size());
}

}  // namespace

nlohmann::json DataIdentity::to_json() const {
  const auto split = [](const SplitIdentity& of) {
    return nlohmann::json{{"samples", of.samples}, {"digest", of.digest}};
  };
  return {{"train", split(train)}, {"test", split(test)}};
}

DataIdentity DataIdentity::from_json(const nlohmann::json& json) {
  const auto split = [&](const char* name) {
    return SplitIdentity{json.at(name).at("samples"), json.at(name).at("digest")};
  };
  return {split("train"), split("test")};
}

SplitIdentity identity_of(const data::Dataset& dataset) {
  const data::DatasetInfo& info = dataset.info();
  const bool has_targets = info.kind == SampleKind::kImage;
  storage::Digester digester;
  feed(digester, std::vector<std::int64_t>{has_targets ? 0 : 1, info.channels, info.height, info.width, info.classes,
                                           info.context, dataset.size()});
  if (info.is_encoded) feed_files(digester, dataset);
  const std::int64_t count = samples_to_read(dataset);
  std::vector<std::uint8_t> sample(info.sample_bytes());
  std::vector<std::int64_t> targets;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = i * (dataset.size() - 1) / std::max<std::int64_t>(count - 1, 1);
    if (info.is_encoded) {
      sample = bytes_of_picture(dataset, index);
    } else if (!info.has_bytes) {
      sample = bytes_of_fields(dataset, index);
    } else {
      dataset.read(index, sample);
    }
    feed(digester, sample);
    if (has_targets) targets.push_back(dataset.target(index));
  }
  feed(digester, targets);
  if (const data::QuestionSet* const questions = dataset.question_set(); questions != nullptr)
    feed(digester, *questions);
  return {dataset.size(), digester.digest().xxh3_128};
}

DataIdentity identity_of(const data::Dataset& train, const data::Dataset& test) {
  return {identity_of(train), identity_of(test)};
}

std::optional<std::string> difference(const SplitIdentity& now, const SplitIdentity& then, const std::string& what,
                                      const std::string& name) {
  if (now == then) return std::nullopt;
  if (now.samples != then.samples) {
    return concat("data set ", name, " had ", then.samples, " ", what, " when the checkpoint was written and has ",
                  now.samples, " now");
  }
  return concat("the ", now.samples, " ", what, " of data set ", name, " differ from those of the checkpoint");
}

}  // namespace sluice::train
