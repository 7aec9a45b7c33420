#include "storage/run_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "storage/folder_lock.h"

namespace sluice::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTrace = "trace.rank", kTorchTrace = "torch_trace.rank", kTraceEnding = ".json.gz";

std::string trace_of_run(const fs::path& dir) {
  std::error_code ignored;
  for (const auto* name : {"config.toml", "metrics.jsonl", "checkpoints"}) {
    // A failed start leaves an empty checkpoints folder.
    const bool nothing = fs::is_directory(dir / name, ignored) && fs::is_empty(dir / name, ignored);
    if (fs::exists(dir / name, ignored) && !nothing) return name;
  }
  return {};
}

std::string file_name_of(std::string_view name) {
  std::string safe;
  for (const char c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    safe += plain ? c : '_';
  }
  return safe.empty() || safe.front() == '.' ? concat("run", safe) : safe;
}

std::string local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &parts);
  return text.data();
}

// Returns the sortable suffix of NAME-<date>-<time>[-n]; nothing for other names.
std::optional<std::pair<std::string, int>> stamp_of(const std::string& directory, const std::string& name) {
  constexpr std::size_t kStamp = 15;
  if (!directory.starts_with(name + "-")) return std::nullopt;
  const std::string rest = directory.substr(name.size() + 1);
  const std::string stamp = rest.substr(0, kStamp);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t i = 0; i < kStamp; ++i) {
    if (stamp.size() < kStamp || (i == 8 ? stamp[i] != '-' : !is_digit(stamp[i]))) return std::nullopt;
  }
  if (rest.size() == kStamp) return std::pair{stamp, 1};
  const std::string number = rest.substr(kStamp + 1);
  const bool is_number =
      rest[kStamp] == '-' && !number.empty() && number.size() < 9 && std::ranges::all_of(number, is_digit);
  return is_number ? std::optional(std::pair{stamp, std::stoi(number)}) : std::nullopt;
}

std::map<int, fs::path> files_by_rank(const fs::path& dir, std::string_view begin) {
  std::map<int, fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(dir, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (!name.starts_with(begin) || !entry->is_regular_file(ignored)) continue;
    int rank = -1;
    std::from_chars(name.data() + begin.size(), name.data() + name.size(), rank);
    if (rank >= 0 && name == concat(begin, rank, kTraceEnding)) files[rank] = entry->path();
  }
  return files;
}

void check_path(const fs::path& dir, bool must_be_there) {
  std::error_code ignored;
  const bool has_entry = fs::symlink_status(dir, ignored).type() != fs::file_type::not_found;
  if (fs::is_directory(dir, ignored)) return;
  if (must_be_there) {
    throw ConfigError(
        concat("no run directory ", dir.string(), " to resume; check the path or start without --resume"));
  }
  if (has_entry) {  // read first, because another process may make the directory now
    throw ConfigError(concat("run directory ", dir.string(), " is a file or a broken link; choose another --run-dir"));
  }
}

}  // namespace

RunDir::RunDir(fs::path dir, RunDirMode mode) : dir_(std::move(dir)) {
  std::error_code ignored;
  const bool must_hold_run = mode == RunDirMode::kResume || mode == RunDirMode::kTakeOver;
  check_path(dir_, must_hold_run);
  is_new_ = !fs::exists(dir_, ignored);
  for (const char* name : {"config.toml", "log.txt", "checkpoints", ".lock"}) {
    if (!fs::exists(dir_ / name, ignored)) own_names_.emplace_back(name);
  }
  make_directories(dir_);
  lock_ = lock_folder(dir_, "run directory", "choose another --run-dir",
                      mode == RunDirMode::kTakeOver ? WithoutLocks::kError : WithoutLocks::kWarning);
  open_dir_ = FileDescriptor(::open(dir_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const auto trace = trace_of_run(dir_);
  resumes_ = !trace.empty();
  if (mode == RunDirMode::kNew && resumes_) {
    throw ConfigError(
        "run directory ", dir_.string(), " already holds a run (", trace,
        "): to continue it (or begin it, if it has no checkpoint yet) add --resume auto; otherwise choose another "
        "--run-dir");
  }
  if (must_hold_run && !resumes_) {
    throw ConfigError(
        concat("run directory ", dir_.string(), " holds no run to resume; check the path or start without --resume"));
  }
}

RunDir::Presence RunDir::presence() const {
  std::error_code error;
  const bool is_there = fs::is_directory(dir_, error);
  const bool is_unknown = error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory;
  if (!is_there && !is_unknown) return Presence::kGone;
  struct stat own {};
  struct stat named {};
  if (::fstat(open_dir_.get(), &own) != 0 || ::stat(dir_.c_str(), &named) != 0)
    return Presence::kThere;  // on errors, assumes that the directory is there
  return own.st_dev == named.st_dev && own.st_ino == named.st_ino ? Presence::kThere : Presence::kReplaced;
}

std::function<void()> RunDir::discarding() const {
  if (resumes_) return [] {};
  return [dir = dir_, names = own_names_, is_new = is_new_] {
    std::error_code ignored;
    for (const std::string& name : names) fs::remove(dir / name, ignored);
    if (is_new) fs::remove(dir, ignored);  // only if empty
  };
}

std::vector<fs::path> RunDir::named(const fs::path& parent, std::string_view config_name) {
  std::map<std::pair<std::string, int>, fs::path, std::greater<>> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(parent, missing)) {
    const auto stamp = stamp_of(entry.path().filename().string(), file_name_of(config_name));
    if (stamp) found[*stamp] = entry.path();
  }
  std::vector<fs::path> directories;
  for (const auto& [stamp, directory] : found) directories.push_back(directory);
  return directories;
}

std::string RunDir::trace_name(int rank) { return concat(kTrace, rank, kTraceEnding); }

std::string RunDir::worker_trace_name(int worker) { return concat("trace.worker", worker, kTraceEnding); }

std::string RunDir::torch_trace_name(int rank) { return concat(kTorchTrace, rank, kTraceEnding); }

std::map<int, fs::path> RunDir::traces(const fs::path& dir) { return files_by_rank(dir, kTrace); }

std::map<int, fs::path> RunDir::torch_traces(const fs::path& dir) { return files_by_rank(dir, kTorchTrace); }

RunDir RunDir::create_named(const fs::path& parent, std::string_view config_name) {
  make_directories(parent);
  const auto stem = concat(file_name_of(config_name), "-", local_time());
  for (int n = 1;; ++n) {
    const auto dir = parent / (n == 1 ? stem : concat(stem, "-", n));
    std::error_code error;
    if (fs::create_directory(dir, error)) {
      RunDir made(dir, RunDirMode::kNew);
      made.is_new_ = true;
      return made;
    }
    if (error) throw_storage_error(error.value(), "create folder", dir);
  }
}

}  // namespace sluice::storage
