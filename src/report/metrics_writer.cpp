#include "report/metrics_writer.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <system_error>

#include "core/check.h"
#include "core/concat.h"
#include "core/log.h"
#include "report/record_fields.h"

namespace sluice::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void name_non_finite(Json& value) {
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (std::isnan(number)) value = "NaN";
    if (std::isinf(number)) value = number > 0 ? "Infinity" : "-Infinity";
  } else if (value.is_structured()) {
    for (auto& inner : value) name_non_finite(inner);
  }
}

std::uint64_t length_to_keep(const fs::path& file, const MetricsPosition& start) {
  const auto kept = whole_lines(file, start.bytes);
  if (kept != start.bytes) {
    log_warning(file.string(), " has ", kept, " bytes of whole lines before the checkpoint, which was saved at byte ",
                start.bytes, "; the lines between are lost (power loss or edited file)");
  }
  return kept;
}

}  // namespace

std::uint64_t whole_lines(const fs::path& file, std::uint64_t limit) {
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 16;
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (error) return 0;
  std::ifstream in(file, std::ios::binary);
  std::string block;
  for (auto end = std::min<std::uint64_t>(size, limit); end > 0;) {
    const auto begin = end - std::min(end, kBlock);
    block.resize(end - begin);
    in.seekg(static_cast<std::streamoff>(begin));
    if (!in.read(block.data(), static_cast<std::streamsize>(block.size()))) return 0;
    if (const auto newline = block.rfind('\n'); newline != std::string::npos) return begin + newline + 1;
    end = begin;
  }
  return 0;
}

std::optional<Json> last_event(const fs::path& file, std::string_view event) {
  const std::string begin = concat(R"({"event":")", event, "\"");
  std::ifstream lines(file);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(begin)) last = line;
  }
  const Json parsed = Json::parse(last, nullptr, /*allow_exceptions=*/false);
  return parsed.is_object() ? std::optional(parsed) : std::nullopt;
}

MetricsPosition position_after_step(const fs::path& file, std::int64_t step) {
  std::ifstream in(file, std::ios::binary);
  std::string line;
  MetricsPosition position{.bytes = whole_lines(file, std::numeric_limits<std::uint64_t>::max())};
  for (std::uint64_t end = position.bytes, begin = 0; end > 0; end = begin) {
    begin = whole_lines(file, end - 1);
    line.resize(end - begin);
    in.seekg(static_cast<std::streamoff>(begin));
    in.read(line.data(), static_cast<std::streamsize>(line.size()));
    const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (end == position.bytes) position.time_s = number_at(parsed, "time_s").value_or(0);
    const auto of_step = number_at(parsed, "step");  // events without a step belong to the previous line with one
    if (!of_step) continue;
    const bool is_change = parsed.value("event", "") == "freeze" || parsed.value("event", "") == "transition";
    if (*of_step < static_cast<double>(step) + (is_change ? 0 : 1)) return position;
    position = {.bytes = begin};
  }
  return position;
}

MetricsWriter::MetricsWriter(const fs::path& file, MetricsPosition start)
    : file_(file, length_to_keep(file, start)), zero_ns_(now_ns() - from_s(start.time_s)) {}

bool MetricsWriter::write(std::string_view event, const Json& fields) {
  check(fields.is_null() || (fields.is_object() && !fields.contains("event") && !fields.contains("time_s")),
        "an object without event and time_s as the fields of a metrics line");
  const std::scoped_lock lock(mutex_);  // locked before reading the clock, so that time_s never decreases
  Json line{{"event", event}, {"time_s", std::round(to_s(now_ns() - zero_ns_) * 1e6) * 1e-6}};
  if (!fields.is_null()) line.update(fields);
  name_non_finite(line);
  return file_.append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

MetricsPosition MetricsWriter::sync() {
  const std::scoped_lock lock(mutex_);
  file_.sync();
  return {file_.bytes(), to_s(now_ns() - zero_ns_)};
}

bool MetricsWriter::is_linked() const {
  const std::scoped_lock lock(mutex_);
  return file_.is_linked();
}

std::uint64_t MetricsWriter::bytes() const {
  const std::scoped_lock lock(mutex_);
  return file_.bytes();
}

double MetricsWriter::time_s() const { return to_s(now_ns() - zero_ns_); }

std::uint64_t MetricsWriter::dropped() const {
  const std::scoped_lock lock(mutex_);
  return file_.dropped();
}

}  // namespace sluice::report
