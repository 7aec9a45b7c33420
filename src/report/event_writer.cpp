#include "report/event_writer.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
#include <protozero/pbf_writer.hpp>
#include <system_error>

#include "core/clock.h"
#include "core/concat.h"
#include "core/host.h"
#include "report/crc32c.h"
#include "storage/files.h"

namespace sluice::report {
namespace {

namespace fs = std::filesystem;

// Field numbers from tensorflow/core/util/event.proto, framework/summary.proto and framework/tensor.proto.
namespace event {
constexpr protozero::pbf_tag_type kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace session_log {
constexpr protozero::pbf_tag_type kStatus = 1;
constexpr std::int32_t kStart = 1;
}  // namespace session_log
namespace summary {
constexpr protozero::pbf_tag_type kValue = 1;
}
namespace value {
constexpr protozero::pbf_tag_type kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9;
}
namespace metadata {
constexpr protozero::pbf_tag_type kPluginData = 1, kPluginName = 1, kPluginContent = 2, kDataClass = 4;
constexpr std::int32_t kDataClassTensor = 2;
}  // namespace metadata
namespace tensor {
constexpr protozero::pbf_tag_type kDtype = 1, kShape = 2, kStringValue = 8;
constexpr std::int32_t kDtypeString = 7;
}  // namespace tensor

// Field numbers from tensorboard/plugins/hparams/plugin_data.proto and google/protobuf/struct.proto.
namespace hparams {
constexpr auto kTag = "_hparams_/session_start_info";
constexpr protozero::pbf_tag_type kSessionStart = 3, kHparams = 1, kStartTime = 5;
constexpr protozero::pbf_tag_type kMapKey = 1, kMapValue = 2;
constexpr protozero::pbf_tag_type kNumber = 2, kString = 3, kBool = 4;
}  // namespace hparams

static_assert(std::endian::native == std::endian::little, "event files are little-endian");

template <typename Word>
void append_word(std::string& bytes, Word word) {
  std::array<char, sizeof(Word)> raw{};
  std::memcpy(raw.data(), &word, sizeof(Word));
  bytes.append(raw.data(), raw.size());
}

void add_toml(protozero::pbf_writer& writer, const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text == "true" || text == "false") {
    writer.add_bool(hparams::kBool, text == "true");
  } else if (error == std::errc{} && end == text.data() + text.size()) {
    writer.add_double(hparams::kNumber, number);
  } else {
    const bool is_quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
    writer.add_string(hparams::kString, is_quoted ? text.substr(1, text.size() - 2) : text);
  }
}

std::string hparams_content(double wall_time, std::span<const Setting> settings) {
  std::string bytes;
  protozero::pbf_writer writer(bytes);
  protozero::pbf_writer session(writer, hparams::kSessionStart);
  for (const auto& [key, text] : settings) {
    protozero::pbf_writer entry(session, hparams::kHparams);
    entry.add_string(hparams::kMapKey, key);
    protozero::pbf_writer value(entry, hparams::kMapValue);
    add_toml(value, text);
  }
  session.add_double(hparams::kStartTime, wall_time);
  session.commit();
  return bytes;
}

// Returns an unused file name in `dir`: a second writer of this process in the same second gets the next <n>.
fs::path new_event_file(const fs::path& dir) {
  storage::make_directories(dir);
  const auto stem =
      concat("events.out.tfevents.", static_cast<std::int64_t>(unix_s()), ".", host_name(), ".", ::getpid());
  for (int n = 0;; ++n) {
    auto file = dir / concat(stem, ".", n);
    if (std::error_code ignored; !fs::exists(file, ignored)) return file;
  }
}

std::string summary_event(double wall_time, std::int64_t step, std::string_view tag,
                          const std::function<void(protozero::pbf_writer&)>& add_content) {
  std::string bytes;
  protozero::pbf_writer writer(bytes);
  writer.add_double(event::kWallTime, wall_time);
  writer.add_int64(event::kStep, step);
  {
    protozero::pbf_writer summary_writer(writer, event::kSummary);
    protozero::pbf_writer value_writer(summary_writer, summary::kValue);
    value_writer.add_string(value::kTag, tag.data(), tag.size());
    add_content(value_writer);
  }
  return bytes;
}

}  // namespace

std::string event_record(std::string_view payload) {
  std::string record;
  append_word(record, static_cast<std::uint64_t>(payload.size()));
  append_word(record, masked_crc32c(record));
  record += payload;
  append_word(record, masked_crc32c(payload));
  return record;
}

std::string version_event(double wall_time) {
  std::string bytes;
  protozero::pbf_writer writer(bytes);
  writer.add_double(event::kWallTime, wall_time);
  writer.add_string(event::kFileVersion, "brain.Event:2");
  return bytes;
}

std::string session_start_event(double wall_time, std::int64_t step) {
  std::string bytes;
  protozero::pbf_writer writer(bytes);
  writer.add_double(event::kWallTime, wall_time);
  writer.add_int64(event::kStep, step);
  protozero::pbf_writer session(writer, event::kSessionLog);
  session.add_enum(session_log::kStatus, session_log::kStart);
  session.commit();
  return bytes;
}

std::string scalar_event(double wall_time, std::int64_t step, std::string_view tag, float value) {
  return summary_event(wall_time, step, tag,
                       [&](protozero::pbf_writer& writer) { writer.add_float(value::kSimpleValue, value); });
}

std::string hparams_event(double wall_time, std::span<const Setting> settings) {
  const std::string content = hparams_content(wall_time, settings);
  return summary_event(wall_time, 0, hparams::kTag, [&](protozero::pbf_writer& writer) {
    protozero::pbf_writer metadata_writer(writer, value::kMetadata);
    {
      protozero::pbf_writer plugin_writer(metadata_writer, metadata::kPluginData);
      plugin_writer.add_string(metadata::kPluginName, "hparams");
      plugin_writer.add_bytes(metadata::kPluginContent, content);
    }
    metadata_writer.add_enum(metadata::kDataClass, metadata::kDataClassTensor);
  });
}

std::string text_event(double wall_time, std::int64_t step, std::string_view tag, std::string_view text) {
  return summary_event(wall_time, step, tag, [&](protozero::pbf_writer& writer) {
    {
      protozero::pbf_writer tensor_writer(writer, value::kTensor);
      tensor_writer.add_enum(tensor::kDtype, tensor::kDtypeString);
      tensor_writer.add_message(tensor::kShape, "", 0);  // a scalar
      tensor_writer.add_string(tensor::kStringValue, text.data(), text.size());
    }
    protozero::pbf_writer metadata_writer(writer, value::kMetadata);
    {
      protozero::pbf_writer plugin_writer(metadata_writer, metadata::kPluginData);
      plugin_writer.add_string(metadata::kPluginName, "text");
    }
    metadata_writer.add_enum(metadata::kDataClass, metadata::kDataClassTensor);
  });
}

EventWriter::EventWriter(const fs::path& dir, std::optional<std::int64_t> first_step) : file_(new_event_file(dir), 0) {
  const auto now = unix_s();
  file_.append(event_record(version_event(now)));
  if (first_step) file_.append(event_record(session_start_event(now, *first_step)));
}

void EventWriter::scalar(std::int64_t step, std::string_view tag, double value) {
  file_.append(event_record(scalar_event(unix_s(), step, tag, static_cast<float>(value))));
}

void EventWriter::hparams(std::span<const Setting> settings) {
  file_.append(event_record(hparams_event(unix_s(), settings)));
}

void EventWriter::text(std::int64_t step, std::string_view tag, std::string_view markdown) {
  file_.append(event_record(text_event(unix_s(), step, tag, markdown)));
}

}  // namespace sluice::report
