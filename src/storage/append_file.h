// append_file: a file that grows record by record while training runs: metrics.jsonl and TensorBoard events.
// A disk that fills up must not stop training nor leave half a record: a record that cannot be written whole is taken
// back and counted, the first one with a warning; later ones are tried again, since space may come back.
// Not durable record by record: sync() makes durable what was written so far.
// Threads: one at a time. Errors: StorageError when the file cannot be opened; none later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "storage/files.h"

namespace sluice::storage {

class AppendFile {
 public:
  // Creates the file or continues it after its first `keep_bytes` bytes (at most its size); what follows is cut off.
  AppendFile(std::filesystem::path file, std::uint64_t keep_bytes);
  ~AppendFile();  // says how many records were dropped
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // One write(). False: the record was dropped and the file is as before.
  bool append(std::string_view record);
  void sync();  // failure is a warning

  [[nodiscard]] bool is_linked() const;  // false: the file was removed, and what is written is lost
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }      // length of the file: whole records
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }  // records
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  void drop(int error);

  std::filesystem::path path_;
  FileDescriptor file_;
  bool had_link_ = false;
  std::uint64_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
  bool broken_ = false;  // half a record could not be taken back: nothing may follow it
};

}  // namespace sluice::storage
