#include "pipeline/schedule/schedule_file.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <system_error>
#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/validate.h"

namespace sluice::pipeline {
namespace {

constexpr std::uintmax_t kLargestFile = 64U << 20U;  // bytes
constexpr std::string_view kGiveAScheduleFile = "; give a file with one line of actions per device";

void require_few_actions(const Schedule& schedule, std::string_view source) {
  std::int64_t actions = 0;
  for (const auto& of_device : schedule.devices) actions += static_cast<std::int64_t>(of_device.size());
  if (actions > kMostActions)
    throw ConfigError(source, " has ", actions, " actions, more than ", kMostActions, "; give a shorter one");
}

std::vector<int> devices_named_in(std::string_view sentence, std::size_t devices) {
  constexpr std::string_view kWord = "device ";
  std::vector<int> named;
  for (auto at = sentence.find(kWord); at != std::string_view::npos; at = sentence.find(kWord, at + 1)) {
    const std::string_view number = sentence.substr(at + kWord.size());
    int device = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), device);
    const bool is_known = error == std::errc{} && static_cast<std::size_t>(device) < devices;
    if (is_known && std::ranges::find(named, device) == named.end()) named.push_back(device);
  }
  return named;
}

std::string with_lines(std::string_view sentence, const WrittenSchedule& written, std::string_view source) {
  const auto line_of = [&](int device) { return written.device_lines[static_cast<std::size_t>(device)]; };
  const std::vector<int> named = devices_named_in(sentence, written.device_lines.size());
  const int line = named.empty() ? written.header_line : line_of(named.front());
  std::string text = concat(source, ":", line, ": ", sentence);
  if (named.size() < 2) return text;
  std::vector<std::string> lines;
  for (const int device : named) lines.push_back(concat("device ", device, " is line ", line_of(device)));
  return concat(text, " (", join(lines, ", "), ")");
}

WrittenSchedule prove(std::string_view text, std::string_view source) {
  WrittenSchedule written = parse_written_schedule(text, source);
  require_few_actions(written.schedule, source);
  try {
    validate(written.schedule);
  } catch (const ConfigError& error) {
    throw ConfigError(with_lines(error.what(), written, source));
  }
  return written;
}

}  // namespace

std::string read_schedule_file(std::istream& in, const std::string& source) {
  std::string text;
  for (char block[1 << 16]; in.read(block, sizeof block) || in.gcount() > 0;) {
    text.append(block, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kLargestFile)
      throw ConfigError(source, ": larger than ", human_bytes(kLargestFile), "; this is not a schedule file");
  }
  if (in.bad()) throw ConfigError(source, ": reading it failed", kGiveAScheduleFile);
  return text;
}

std::string read_schedule_file(const std::filesystem::path& file) {
  const std::string source = printable(file.string());
  std::error_code failed;
  if (std::filesystem::is_directory(file, failed)) throw ConfigError(source, ": is a folder", kGiveAScheduleFile);
  std::ifstream in(file, std::ios::binary);
  if (!in) throw ConfigError(source, ": cannot be read", kGiveAScheduleFile);
  return read_schedule_file(in, source);
}

Schedule prove_schedule(std::string_view text, std::string_view source) { return prove(text, source).schedule; }

Schedule prove_training_schedule(std::string_view text, std::string_view source) {
  WrittenSchedule written = prove(text, source);
  const Schedule& schedule = written.schedule;
  if (is_forward_only(schedule)) {
    throw ConfigError(
        concat(source, ":", written.header_line, ": it has forwards only; to train, each needs its B, or its I and W"));
  }
  const std::vector<int> counts = stages_per_device(schedule);
  const auto other = std::ranges::find_if(counts, [&](int count) { return count != counts.front(); });
  if (other != counts.end()) {
    const auto device = static_cast<std::size_t>(other - counts.begin());
    throw ConfigError(source, ":", written.device_lines[device], ": device ", device, " has ", counted(*other, "stage"),
                      ", but device 0 has ", counts.front(), "; to train, give every device the same number of stages");
  }
  return std::move(written.schedule);
}

}  // namespace sluice::pipeline
