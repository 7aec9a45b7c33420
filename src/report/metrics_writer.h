// metrics_writer: metrics.jsonl, one JSON object per line: "event", "time_s", then the fields as given.
// time_s: seconds since the start of training, going on over resumes (the pause between is not counted).
// Numbers that JSON cannot hold are written as the strings "NaN", "Infinity" and "-Infinity" (the names of the protobuf
// JSON mapping, which Python's float() takes); bytes that are not UTF-8 become U+FFFD.
// Not here: what an event means (train/); TensorBoard (event_writer.h).
// A line is one write(). A full disk drops lines, never half a line, with one warning and a count at the end.
// Threads: any. Errors: StorageError when the file cannot be opened; none later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "core/clock.h"
#include "storage/append_file.h"

namespace sluice::report {

// Where a run stands in its metrics; belongs into every checkpoint.
struct MetricsPosition {
  std::uint64_t bytes = 0;  // length of metrics.jsonl
  double time_s = 0.0;      // training time so far
};

class MetricsWriter {
 public:
  // A new run starts at {}, which empties the file. A resumed one starts at the position of its checkpoint: later lines
  // are cut off, so that repeated steps do not appear twice. When the file is shorter than that (lost with the power)
  // or was edited, whole lines are kept and a warning is given.
  explicit MetricsWriter(const std::filesystem::path& file, MetricsPosition start = {});

  // False when the line was dropped. Requires: `fields` is {} or an object without "event", "time_s".
  bool write(std::string_view event, const nlohmann::ordered_json& fields);

  // Makes the lines so far durable and says where the run stands: call it before a checkpoint.
  [[nodiscard]] MetricsPosition sync();

  // False when somebody has removed the file: lines go nowhere then.
  [[nodiscard]] bool is_linked() const;
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] double time_s() const;
  [[nodiscard]] std::uint64_t dropped() const;  // lines

 private:
  mutable std::mutex mutex_;
  storage::AppendFile file_;  // guarded by mutex_
  Nanoseconds zero_ns_;       // time_s = 0 on our clock
};

// The last line of `event` in a file; nothing when there is none.
[[nodiscard]] std::optional<nlohmann::ordered_json> last_event(const std::filesystem::path& file,
                                                               std::string_view event);

// Position before the first line of a later step, or of a change of plan after `step` (events "freeze", "transition"),
// which a run that resumes from `step` makes again.
[[nodiscard]] MetricsPosition position_after_step(const std::filesystem::path& file, std::int64_t step);

// Length of the whole lines within the first `limit` bytes of a file; 0 when there is no file.
[[nodiscard]] std::uint64_t whole_lines(const std::filesystem::path& file, std::uint64_t limit);

}  // namespace sluice::report
