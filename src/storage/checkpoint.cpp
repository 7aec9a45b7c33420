#include "storage/checkpoint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "storage/files.h"

namespace sluice::storage {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;
constexpr std::string_view kStateFile = "state.json";
constexpr std::string_view kModelFile = "model.safetensors";
constexpr std::string_view kOptimizerFile = "optimizer.safetensors";
constexpr std::string_view kAverageFile = "ema.safetensors";
constexpr std::string_view kAdapterFile = "adapter_model.safetensors";
constexpr std::string_view kStepPrefix = "step-";

// Layout of state.json: kHashBegin, 32 hexadecimal digits, kHashEnd, and the rest, which the hash covers.
constexpr std::string_view kHashBegin = R"({"xxh3_128":")";
constexpr std::string_view kHashEnd = R"(",)";
constexpr std::size_t kHashDigits = 32;

constexpr std::string_view kAdvice = "; resume from another checkpoint (--resume auto takes the newest intact one)";

[[noreturn]] void damaged(const fs::path& file, std::string_view what) {
  throw CheckpointError(file.string(), " is damaged: ", what);
}

[[noreturn]] void missing(const fs::path& dir, std::string_view file) {
  throw CheckpointError(dir.string(), " is not a complete checkpoint: ", file, " is missing");
}

bool all_finite(const json& value) {
  if (value.is_number_float()) return std::isfinite(value.get<double>());
  return !value.is_structured() || std::ranges::all_of(value, all_finite);
}

json digest_json(const FileDigest& digest) { return {{"bytes", digest.bytes}, {"xxh3_128", digest.xxh3_128}}; }

std::string encode_state(const json& document) {
  std::string rest;
  try {
    rest = document.dump().substr(1) + "\n";
  } catch (const json::exception& error) {
    check(false, concat("UTF-8 strings in the state of a checkpoint, not ", error.what()));
  }
  return concat(kHashBegin, digest_text(rest).xxh3_128, kHashEnd, rest);
}

json intact_state(const fs::path& dir) {
  const auto file = dir / kStateFile;
  if (std::error_code ignored; !fs::exists(file, ignored)) missing(dir, kStateFile);
  const auto text = read_text(file);
  const auto frame = kHashBegin.size() + kHashDigits + kHashEnd.size();
  if (text.size() < frame) damaged(file, concat("it has ", text.size(), " bytes (truncated)"));
  const auto hash = text.substr(kHashBegin.size(), kHashDigits);
  const auto rest = std::string_view(text).substr(frame);
  if (!text.starts_with(kHashBegin) || text.compare(frame - kHashEnd.size(), kHashEnd.size(), kHashEnd) != 0) {
    damaged(file, R"(it does not begin with {"xxh3_128":"..."})");
  }
  const auto found = digest_text(rest).xxh3_128;
  if (found != hash) damaged(file, concat("its XXH3-128 is ", found, ", expected ", hash));
  try {
    auto document = json::parse(concat("{", rest));
    if (const int format = document.at("format").get<int>(); format != kFormat) {
      throw CheckpointError(file.string(), " has format ", format, ", this version of Sluice reads ", kFormat,
                            "; use the version that wrote it");
    }
    return document;
  } catch (const json::exception& error) {
    damaged(file, error.what());
  }
}

FileDigest expected_digest(const json& document, std::string_view name, const fs::path& dir) {
  try {
    const auto& entry = document.at("files").at(std::string(name));
    return {entry.at("bytes").get<std::uint64_t>(), entry.at("xxh3_128").get<std::string>()};
  } catch (const json::exception& error) {
    damaged(dir / kStateFile, error.what());
  }
}

void check_size(const fs::path& dir, std::string_view name, const FileDigest& expected) {
  std::error_code error;
  const auto size = fs::file_size(dir / name, error);
  if (error) missing(dir, name);
  if (size != expected.bytes) {
    damaged(dir / name, concat("it has ", size, " bytes, ", kStateFile, " says ", expected.bytes));
  }
}

void check_step(const json& document, const fs::path& dir) {
  const auto named = step_of(dir);
  const auto step = document.find("step");
  if (step == document.end() || !step->is_number_integer()) damaged(dir / kStateFile, "it has no step");
  if (named && *named != step->get<std::int64_t>()) {
    damaged(dir / kStateFile, concat("it belongs to step ", step->get<std::int64_t>(), ", its directory to ", *named));
  }
}

bool has_average(const json& document) {
  const auto files = document.find("files");
  return files != document.end() && files->is_object() && files->contains(std::string(kAverageFile));
}

std::vector<std::string_view> files_of(const json& document) {
  std::vector<std::string_view> files{kModelFile, kOptimizerFile};
  if (has_average(document)) files.push_back(kAverageFile);
  return files;
}

json verified_state(const fs::path& dir) {
  auto document = intact_state(dir);
  check_step(document, dir);
  for (const auto name : files_of(document)) {
    const auto expected = expected_digest(document, name, dir);
    check_size(dir, name, expected);
    const auto found = digest_file(dir / name);
    if (found != expected) {
      damaged(dir / name, concat("its XXH3-128 is ", found.xxh3_128, ", ", kStateFile, " says ", expected.xxh3_128));
    }
  }
  return document;
}

json write_tensors(const fs::path& file, std::int64_t step, const TensorMap& tensors,
                   std::map<std::string, std::string> metadata = {}) {
  metadata["format"] = "pt";
  try {
    return digest_json(write_safetensors(file, tensors, metadata, Values::kFinite));
  } catch (const DivergedError& error) {
    throw DivergedError("after step ", step, ": ", error.what(), ", so no checkpoint was written");
  }
}

}  // namespace

void write_checkpoint(const fs::path& dir, std::int64_t step, const CheckpointContents& contents) {
  auto document = contents.state;
  check(document.is_object(), "a JSON object as the state of a checkpoint");
  for (const auto* reserved : {"xxh3_128", "files", "format"}) {
    check(!document.contains(reserved), concat("the state of a checkpoint without the reserved key ", reserved));
  }
  check(!document.contains("step") || document["step"] == step,
        "the same step in the state of a checkpoint and in its name");
  check(all_finite(document), "only finite numbers in the state of a checkpoint");
  document["step"] = step;
  document["format"] = kFormat;
  document["files"][std::string(kModelFile)] = write_tensors(dir / kModelFile, step, contents.model, contents.metadata);
  document["files"][std::string(kOptimizerFile)] = write_tensors(dir / kOptimizerFile, step, contents.optimizer);
  if (!contents.average.empty())
    document["files"][std::string(kAverageFile)] =
        write_tensors(dir / kAverageFile, step, contents.average, contents.metadata);
  if (!contents.adapter.empty()) write_tensors(dir / kAdapterFile, step, contents.adapter);
  for (const auto& [name, text] : contents.beside) write_text_atomically(dir / name, text);
  write_text_atomically(dir / kStateFile, encode_state(document));
}

CheckpointContents load_checkpoint(const fs::path& dir) {
  try {
    auto state = verified_state(dir);
    TensorMap average;
    if (has_average(state)) average = read_safetensors(dir / kAverageFile).tensors;
    state.erase("files");
    state.erase("format");
    return {read_safetensors(dir / kModelFile).tensors, read_safetensors(dir / kOptimizerFile).tensors,
            std::move(state), std::move(average)};
  } catch (const CheckpointError& error) {
    throw CheckpointError(error.what(), kAdvice);
  }
}

json read_state(const fs::path& checkpoint) {
  return json::parse(read_text(checkpoint / kStateFile), nullptr, /*allow_exceptions=*/false);
}

void verify_checkpoint(const fs::path& dir) { static_cast<void>(verified_state(dir)); }

bool looks_complete(const fs::path& dir) {
  try {
    const auto document = intact_state(dir);
    check_step(document, dir);
    for (const auto name : files_of(document)) check_size(dir, name, expected_digest(document, name, dir));
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::optional<std::int64_t> step_of(const fs::path& dir) {
  const auto name = dir.filename().string();
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const auto* const begin = name.data() + kStepPrefix.size();
  const auto* const end = name.data() + name.size();
  if (std::from_chars(begin, end, step).ptr != end || name != checkpoint_name(step)) return std::nullopt;
  return step;
}

std::string checkpoint_name(std::int64_t step) { return concat(kStepPrefix, step); }

std::uint64_t checkpoint_bytes(const CheckpointContents& contents) {
  constexpr std::uint64_t kHeaderBytes = 160;  // typical entry: name, dtype, shape, offsets
  std::uint64_t bytes = contents.state.dump().size();
  for (const TensorMap* tensors : {&contents.model, &contents.optimizer, &contents.average, &contents.adapter})
    bytes += tensor_bytes(*tensors) + kHeaderBytes * tensors->size();
  return bytes;
}

}  // namespace sluice::storage
