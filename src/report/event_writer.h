// event_writer: writes TensorBoard event files (scalars, text, hyper-parameters) without TensorFlow: protobuf by
// protozero, own framing. Each event is one write(), because readers stop at the first incomplete record. A full disk
// drops events with one warning (storage/append_file.h). Non-finite values are written; TensorBoard marks them.
// Threads: one at a time. Errors: StorageError if the file cannot be created.
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

using Setting = std::pair<std::string, std::string>;

class EventWriter {
 public:
  // Creates a new file dir/events.out.tfevents.<seconds>.<host>.<pid>.<n>. first_step: TensorBoard ignores points of
  // older files in `dir` from this step on, because they will be repeated.
  explicit EventWriter(const std::filesystem::path& dir, std::optional<std::int64_t> first_step = std::nullopt);

  void scalar(std::int64_t step, std::string_view tag, double value);  // stored as float
  void text(std::int64_t step, std::string_view tag, std::string_view markdown);
  void hparams(std::span<const Setting> settings);  // for the HPARAMS page
  void sync() { file_.sync(); }

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }

 private:
  storage::AppendFile file_;
};

// One record of an event file: length, masked CRC32C of the length, payload, masked CRC32C of the payload.
[[nodiscard]] std::string event_record(std::string_view payload);

// Payloads (protobuf message Event).
[[nodiscard]] std::string version_event(double wall_time);
[[nodiscard]] std::string session_start_event(double wall_time, std::int64_t step);
[[nodiscard]] std::string scalar_event(double wall_time, std::int64_t step, std::string_view tag, float value);
[[nodiscard]] std::string hparams_event(double wall_time, std::span<const Setting> settings);
[[nodiscard]] std::string text_event(double wall_time, std::int64_t step, std::string_view tag, std::string_view text);

}  // namespace sluice::report
