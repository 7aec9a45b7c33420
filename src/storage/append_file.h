// append_file: a file that grows record by record during training (metrics.jsonl, TensorBoard events). On a full disk,
// training continues: a record that cannot be written whole is removed and counted, with one warning. Only sync() makes
// records durable. Threads: one at a time. Errors: StorageError if the file cannot be opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "storage/files.h"

namespace sluice::storage {

class AppendFile {
 public:
  // Creates the file, or truncates an existing one to `keep_bytes` and appends to it.
  AppendFile(std::filesystem::path file, std::uint64_t keep_bytes);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Returns false if the record was dropped; the file is then unchanged.
  bool append(std::string_view record);
  void sync();

  [[nodiscard]] bool is_linked() const;  // false if the file was removed, so that its data is lost
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  void drop(int error);

  std::filesystem::path path_;
  FileDescriptor file_;
  bool had_link_ = false;
  std::uint64_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
  bool broken_ = false;  // half a record could not be removed; no record may follow it
};

}  // namespace sluice::storage
