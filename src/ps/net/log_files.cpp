#include "ps/net/log_files.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "storage/files.h"

namespace sluice::ps {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "updates-";
constexpr std::string_view kSuffix = ".log";

std::optional<std::int64_t> version_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) || name.size() <= kPrefix.size() + kSuffix.size())
    return std::nullopt;
  std::int64_t version = 0;
  const char* const begin = name.data() + kPrefix.size();
  const char* const end = name.data() + name.size() - kSuffix.size();
  const auto [stop, error] = std::from_chars(begin, end, version);
  return error == std::errc{} && stop == end && version >= 0 ? std::optional(version) : std::nullopt;
}

fs::path free_name_for(const fs::path& file) {
  fs::path aside = file.string() + ".replaced";
  for (int number = 2; fs::exists(aside); ++number) aside = concat(file.string(), ".replaced-", number);
  return aside;
}

}  // namespace

std::vector<std::int64_t> logged_versions(const fs::path& folder) {
  std::vector<std::int64_t> versions;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (const auto version = version_of(entry.path().filename().string())) versions.push_back(*version);
  }
  std::ranges::sort(versions);
  return versions;
}

fs::path log_file(const fs::path& folder, std::int64_t version) { return folder / concat(kPrefix, version, kSuffix); }

void remove_logs(const fs::path& folder, std::int64_t begin, std::int64_t end) {
  for (const std::int64_t version : logged_versions(folder)) {
    if (version < begin || version >= end) continue;
    std::error_code error;
    fs::remove(log_file(folder, version), error);
    if (error) log_warning("cannot remove ", log_file(folder, version).string(), ": ", error.message());
  }
  std::error_code ignored;
  if (fs::is_empty(folder, ignored) && !ignored) fs::remove(folder, ignored);
}

void set_logs_aside(const fs::path& folder, std::int64_t begin, const std::string& why) {
  std::vector<std::string> kept;
  for (const std::int64_t version : logged_versions(folder)) {
    if (version < begin) continue;
    const fs::path file = log_file(folder, version), aside = free_name_for(file);
    std::error_code error;
    fs::rename(file, aside, error);
    if (error) throw StorageError("cannot rename ", file.string(), ": ", error.message());
    kept.push_back(aside.filename().string());
  }
  if (!kept.empty()) log_warning(why, "; it is kept in ", folder.string(), " as ", join(kept, ", "));
}

std::unique_ptr<storage::RecordLog> begin_log(const fs::path& folder, std::int64_t version, storage::Outlives outlives,
                                              storage::RecordLog* before,
                                              const std::function<void(storage::RecordLog&)>& write) {
  if (before == nullptr)
    storage::make_directories(folder);
  else
    before->sync();  // the next file continues this one
  auto log = std::make_unique<storage::RecordLog>(log_file(folder, version), outlives);
  write(*log);
  log->publish();
  return log;
}

void append(storage::RecordLog& log, std::uint64_t kind, const Frames& frames) {
  std::vector<std::string_view> parts;
  for (const Frame& frame : frames) parts.push_back(frame.bytes);
  log.append(kind, parts);
}

Frames frames_of(const storage::LogRecord& record) {
  Frames frames;
  for (const std::string_view part : record.parts) frames.push_back({part, record.bytes});
  return frames;
}

void warn_of_torn_end(const storage::RecordLogReader& reader) {
  if (reader.torn_bytes() == 0) return;
  log_warning(reader.path().string(), ": skipped the last ", human_bytes(reader.torn_bytes()),
              ", an incomplete record, as a server leaves it that is killed while it writes");
}

}  // namespace sluice::ps
