// record_log: a file of records that grows while a process runs and is read back after that process was killed, or its
// machine has lost power. A record is written when append() returns: whoever promises something to others because of it
// may do so then, or after sync() where the promise is to outlive the machine.
// - The file appears, or takes the place of one of that name, whole: with all that was appended before publish().
// - A record that was cut short at the end of the file is no record: what was never written whole was never promised.
//   A last record that is damaged looks the same. Where records that are whole follow, something was lost that had been
//   promised, and reading is an error.
// Each record has a number and checksums (XXH3-128) of its head and its bytes. Numbers are little-endian, as on all
// machines that this runs on.
// Not here: what is in the records. Files whose records may be lost: append_file.h.
// Threads: one at a time. Errors: StorageError when something cannot be written, after which only the destructor may be
// called; CheckpointError for a file that is damaged or none of these.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/files.h"

namespace sluice::storage {

enum class Outlives { kProcess, kMachine };

class RecordLog {
 public:
  // Makes a file beside `file`, until publish().
  RecordLog(std::filesystem::path file, Outlives outlives);
  ~RecordLog();
  RecordLog(const RecordLog&) = delete;
  RecordLog& operator=(const RecordLog&) = delete;

  // A record of these parts.
  void append(std::uint64_t kind, std::span<const std::string_view> parts);
  // With Outlives::kMachine: all that was appended does. Else nothing.
  void sync();
  // The file has its name from here on.
  void publish();

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  void write(std::string_view bytes);
  [[noreturn]] void fail(int error, std::string_view action);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  Outlives outlives_;
  FileDescriptor file_;
  std::uint64_t records_ = 0;
  std::uint64_t bytes_ = 0;   // of whole records
  std::uint64_t synced_ = 0;  // of these, that outlive the machine
  bool is_published_ = false;
};

struct LogRecord {
  std::uint64_t kind = 0;
  std::vector<std::string_view> parts;  // of *bytes
  std::shared_ptr<const std::string> bytes;
};

class RecordLogReader {
 public:
  // advice: what to do about a damaged file, for the message.
  RecordLogReader(std::filesystem::path file, std::string advice);

  // The next record; nothing: there are no more.
  [[nodiscard]] std::optional<LogRecord> next();
  // After the last record: what is left of one that was cut short. 0: nothing.
  [[nodiscard]] std::uint64_t torn_bytes() const { return size_ - at_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  struct Head;
  [[nodiscard]] std::string read(std::uint64_t from, std::uint64_t bytes) const;
  [[nodiscard]] std::optional<LogRecord> read_record(const Head& head) const;
  [[nodiscard]] bool is_followed_by_committed_record() const;

  std::filesystem::path path_;
  std::string advice_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
  std::uint64_t at_ = 0;  // of the next record
  std::uint64_t records_ = 0;
};

}  // namespace sluice::storage
