// metrics_writer: writes metrics.jsonl, one JSON object per line: "event", "time_s", then the given fields.
// time_s is the training time in seconds; after a resume it continues without the pause. Numbers that JSON cannot hold
// become the strings "NaN", "Infinity" and "-Infinity" (protobuf's JSON names, which Python's float() accepts); bytes
// that are not UTF-8 become U+FFFD.
// A line is one write(). A full disk drops whole lines, with one warning and a count at the end.
// Threads: any. Errors: StorageError if the file cannot be opened.
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

// Position of a run in its metrics, stored in every checkpoint.
struct MetricsPosition {
  std::uint64_t bytes = 0;
  double time_s = 0.0;
};

class MetricsWriter {
 public:
  // A new run starts at {}, which empties the file. A resumed run starts at its checkpoint's position: later lines are
  // cut off, so that repeated steps do not appear twice. If the file is shorter (after a power loss) or was edited,
  // whole lines are kept and a warning is logged.
  explicit MetricsWriter(const std::filesystem::path& file, MetricsPosition start = {});

  // Returns false if the line was dropped. Requires: `fields` is {} or an object without "event" and "time_s".
  bool write(std::string_view event, const nlohmann::ordered_json& fields);

  // Makes the lines so far durable and returns their end.
  [[nodiscard]] MetricsPosition sync();

  // False if the file was removed, so that its lines are lost.
  [[nodiscard]] bool is_linked() const;
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] double time_s() const;
  [[nodiscard]] std::uint64_t dropped() const;

 private:
  mutable std::mutex mutex_;
  storage::AppendFile file_;  // guarded by mutex_
  Nanoseconds zero_ns_;       // clock reading at time_s = 0
};

[[nodiscard]] std::optional<nlohmann::ordered_json> last_event(const std::filesystem::path& file,
                                                               std::string_view event);

// Returns the position before the first line that a resume from `step` writes again: a later step, or a change of plan
// (events "freeze" and "transition") after `step`.
[[nodiscard]] MetricsPosition position_after_step(const std::filesystem::path& file, std::int64_t step);

// Returns the length of the whole lines within the first `limit` bytes of a file; 0 if there is no file.
[[nodiscard]] std::uint64_t whole_lines(const std::filesystem::path& file, std::uint64_t limit);

}  // namespace sluice::report
