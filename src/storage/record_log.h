// record_log: a growing file of records that can be read back after the process is killed or the machine loses power. A
// record is written when append() returns. A promise based on it may be made then, or after sync() if it must survive
// the machine.
// - A record that is cut short or damaged at the end of the file is ignored, because it was never promised. If a
//   committed record follows it, promised data is lost and reading throws.
// - Each record has a number and XXH3-128 checksums of its head and its bytes. Numbers are little-endian.
// Threads: one at a time. Errors: StorageError if writing fails, after which only the destructor may be called;
// CheckpointError for a damaged file or a file of another kind.
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
  // Writes a temporary file beside `file` until publish().
  RecordLog(std::filesystem::path file, Outlives outlives);
  ~RecordLog();
  RecordLog(const RecordLog&) = delete;
  RecordLog& operator=(const RecordLog&) = delete;

  void append(std::uint64_t kind, std::span<const std::string_view> parts);
  void sync();
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
  std::uint64_t bytes_ = 0;
  std::uint64_t synced_ = 0;
  bool is_published_ = false;
};

struct LogRecord {
  std::uint64_t kind = 0;
  std::vector<std::string_view> parts;  // views into *bytes
  std::shared_ptr<const std::string> bytes;
};

class RecordLogReader {
 public:
  RecordLogReader(std::filesystem::path file, std::string advice);

  [[nodiscard]] std::optional<LogRecord> next();
  // After the last record: bytes of a record that was cut short; 0 if nothing was cut short.
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
  std::uint64_t at_ = 0;  // offset of the next record
  std::uint64_t records_ = 0;
};

}  // namespace sluice::storage
