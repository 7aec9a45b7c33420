#include "storage/checkpoint_store.h"

#include <fcntl.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "storage/files.h"

namespace sluice::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporaryMark = ".tmp-";  // step-N.tmp-<pid>
constexpr std::string_view kReplacedMark = ".replaced";
constexpr std::string_view kLeftMark = ".left";  // a checkpoint set aside by set_aside_newer_than()
constexpr std::string_view kBestName = "best";
constexpr double kSpaceMargin = 1.2;

std::vector<fs::path> entries_of(const fs::path& dir) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(it->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) throw_storage_error(error.value(), "list", dir);
  return entries;
}

std::vector<std::int64_t> steps_in(const fs::path& dir) {
  std::vector<std::int64_t> steps;
  for (const auto& entry : entries_of(dir)) {
    if (const auto step = step_of(entry)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

std::optional<pid_t> owner_of(const fs::path& temporary) {
  const auto name = temporary.filename().string();
  const auto mark = name.rfind(kTemporaryMark);
  if (mark == std::string::npos) return std::nullopt;
  pid_t pid = 0;
  const auto* const begin = name.data() + mark + kTemporaryMark.size();
  const auto* const end = name.data() + name.size();
  if (begin == end || std::from_chars(begin, end, pid).ptr != end || pid <= 0) return std::nullopt;
  return pid;
}

// Our own process id counts as gone: a restarted container often gets the same id.
bool is_gone(pid_t pid) { return pid == ::getpid() || (::kill(pid, 0) != 0 && errno == ESRCH); }

fs::path temporary_for(const fs::path& checkpoint) { return concat(checkpoint.string(), kTemporaryMark, ::getpid()); }

void rename_or_throw(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) throw_storage_error(error.value(), "rename to", to);
}

}  // namespace

CheckpointScan scan_checkpoints(const fs::path& dir) {
  CheckpointScan scan;
  for (const auto step : steps_in(dir)) {
    const auto checkpoint = dir / checkpoint_name(step);
    try {
      verify_checkpoint(checkpoint);
      scan.newest = checkpoint;
      return scan;
    } catch (const Error& error) {
      log_warning("skipping ", checkpoint.string(), ": ", error.what());
      scan.damaged.insert(step);
    }
  }
  return scan;
}

CheckpointStore::CheckpointStore(fs::path dir, int keep, std::function<bool()> is_replaced)
    : dir_(std::move(dir)), keep_(keep), is_replaced_(std::move(is_replaced)) {
  check(keep >= 1, "at least one checkpoint to keep in a CheckpointStore");
  make_directories(dir_);
  clean_up();
}

void CheckpointStore::clean_up() {
  for (const auto& entry : entries_of(dir_)) {
    if (const auto owner = owner_of(entry); owner && is_gone(*owner)) {
      log_info("removing ", entry.string(), ", left half-written by process ", *owner);
      std::error_code error;
      fs::remove_all(entry, error);
      if (error) log_warning("cannot remove ", entry.string(), ": ", error.message());
    }
    if (entry.extension() != kReplacedMark) continue;
    auto checkpoint = entry;
    checkpoint.replace_extension();
    if (std::error_code ignored; fs::exists(checkpoint, ignored)) {
      remove(entry);
    } else {
      log_info("restoring ", checkpoint.string(), ", whose replacement was interrupted");
      rename_or_throw(entry, checkpoint);
    }
  }
}

std::vector<std::int64_t> CheckpointStore::steps() const { return steps_in(dir_); }

fs::path CheckpointStore::save(std::int64_t step, const CheckpointContents& contents,
                               std::optional<std::int64_t> proven) {
  check(step >= 0, "a checkpoint step of 0 or more");
  const auto checkpoint = dir_ / checkpoint_name(step);
  const auto temporary = temporary_for(checkpoint);
  std::error_code ignored;
  const bool has_run_dir = fs::exists(dir_.parent_path(), ignored);
  if (has_run_dir && !has_made_dir_) require_own_dir();
  make_directories(dir_);
  if (!has_run_dir) has_made_dir_ = true;  // the run directory was missing and is recreated
  const auto needed = static_cast<double>(checkpoint_bytes(contents)) * kSpaceMargin;
  require_free_space(dir_, static_cast<std::uint64_t>(needed));
  try {
    make_directories(temporary);
    write_checkpoint(temporary, step, contents);
    sync_directory(temporary);
    if (!has_made_dir_) require_own_dir();
    publish(temporary, checkpoint);
  } catch (...) {
    fs::remove_all(temporary, ignored);
    throw;
  }
  saved_ = step;
  proven_ = proven;
  apply_retention();
  remove_set_aside();
  return checkpoint;
}

// Called before and after writing, because the run directory may be renamed during the write.
void CheckpointStore::require_own_dir() const {
  if (is_replaced_ && is_replaced_())
    throw StorageError("another directory has replaced ", dir_.parent_path().string(),
                       ", so no checkpoint was written there");
}

void CheckpointStore::publish(const fs::path& temporary, const fs::path& final_dir) const {
  if (std::error_code ignored; !fs::exists(final_dir, ignored)) {
    rename_or_throw(temporary, final_dir);
    sync_directory(dir_);
    return;
  }
  // Exchanges both atomically if the file system can, so that step-N exists at every instant.
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_dir.c_str(), RENAME_EXCHANGE) == 0) {
    sync_directory(dir_);
    remove(temporary);
    return;
  }
  if (errno != EINVAL && errno != ENOSYS) throw_storage_error(errno, "replace", final_dir);
  // Otherwise uses an intermediate name, which clean_up() restores after a crash.
  const fs::path replaced = concat(final_dir.string(), kReplacedMark);
  rename_or_throw(final_dir, replaced);
  rename_or_throw(temporary, final_dir);
  sync_directory(dir_);
  remove(replaced);
}

void CheckpointStore::keep_best(std::int64_t step) {
  const fs::path link = dir_ / kBestName, temporary = temporary_for(link);
  std::error_code error;
  if (!fs::exists(dir_ / checkpoint_name(step), error)) return;
  best_ = step;
  fs::remove(temporary, error);
  fs::create_directory_symlink(checkpoint_name(step), temporary, error);
  if (!error) fs::rename(temporary, link, error);
  if (error) log_warning("cannot link ", link.string(), " to the best checkpoint: ", error.message());
  apply_retention();
}

void CheckpointStore::apply_retention() const {
  if (!saved_) return;
  int complete = 0;
  for (const auto step : steps_in(dir_)) {
    if (step > *saved_) continue;
    const auto checkpoint = dir_ / checkpoint_name(step);
    if (complete == keep_) {
      if (step != proven_ && step != best_) remove(checkpoint);
    } else if (step == saved_ || looks_complete(checkpoint)) {
      ++complete;
    }
  }
}

void CheckpointStore::set_aside_newer_than(std::int64_t step) {
  for (const auto newer : steps_in(dir_)) {
    if (newer <= step) break;
    const auto checkpoint = dir_ / checkpoint_name(newer);
    const fs::path left = concat(checkpoint.string(), kLeftMark);
    log_info("the run goes on from step ", step, ": ", checkpoint.string(), " is renamed to ", left.filename().string(),
             " and removed at the next checkpoint");
    if (std::error_code ignored; fs::exists(left, ignored)) remove(left);
    rename_or_throw(checkpoint, left);
  }
  sync_directory(dir_);
}

void CheckpointStore::remove_set_aside() const {
  for (const auto& entry : entries_of(dir_)) {
    if (entry.extension() == kLeftMark && step_of(entry.stem())) remove(entry);
  }
}

// A failure costs only space, so it is a warning. Renames first, so that a scan never sees a half-removed checkpoint.
void CheckpointStore::remove(const fs::path& checkpoint) const {
  std::error_code error;
  const auto doomed = owner_of(checkpoint) ? checkpoint : temporary_for(checkpoint);
  if (doomed != checkpoint) fs::rename(checkpoint, doomed, error);
  if (!error) fs::remove_all(doomed, error);
  if (error) log_warning("cannot remove ", checkpoint.string(), ": ", error.message());
}

}  // namespace sluice::storage
