// event_writer: TensorBoard event files (scalars, text, hyper-parameters) without TensorFlow: protobuf by protozero,
// own framing. Not here: metrics.jsonl, the record that Sluice's own report reads (metrics_writer.h); which values are
// written. Each event is one write(), since a reader silently stops at the first record that is cut. A full disk drops
// events with one warning (storage/append_file.h). Non-finite values are written; TensorBoard marks them. Threads: one
// at a time. Errors: StorageError when the file cannot be created; none later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "storage/append_file.h"

namespace sluice::report {

// A key and its value as TOML writes it.
using Setting = std::pair<std::string, std::string>;

class EventWriter {
 public:
  // Creates dir/events.out.tfevents.<seconds>.<host>.<pid>.<n>, a new file each time.
  // first_step: TensorBoard forgets the points of older files in `dir` at this step and after it, since they come
  // again.
  explicit EventWriter(const std::filesystem::path& dir, std::optional<std::int64_t> first_step = std::nullopt);

  void scalar(std::int64_t step, std::string_view tag, double value);             // kept as float, as TensorBoard does
  void text(std::int64_t step, std::string_view tag, std::string_view markdown);  // e.g. the configuration, the plan
  void hparams(std::span<const Setting> settings);                                // for the page HPARAMS
  void sync() { file_.sync(); }

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }

 private:
  storage::AppendFile file_;
};

// One record of an event file: length, masked CRC32C of the length, payload, masked CRC32C of the payload.
[[nodiscard]] std::string event_record(std::string_view payload);

// Payloads (protobuf message Event); wall_time in seconds since 1970.
[[nodiscard]] std::string version_event(double wall_time);
[[nodiscard]] std::string session_start_event(double wall_time, std::int64_t step);
[[nodiscard]] std::string scalar_event(double wall_time, std::int64_t step, std::string_view tag, float value);
[[nodiscard]] std::string hparams_event(double wall_time, std::span<const Setting> settings);
[[nodiscard]] std::string text_event(double wall_time, std::int64_t step, std::string_view tag, std::string_view text);

}  // namespace sluice::report
