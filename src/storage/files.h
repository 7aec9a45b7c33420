// storage: the file operations of a run directory that must not lose data: atomic replacement, fsync, free space.
// Not here: files that grow while training (append_file.h), what is in the files.
// Writing throws StorageError (exit code 8) that names the path, what was needed, what is free and what to do.
// Reading throws CheckpointError when there is nothing to read and StorageError when the disk fails. Both throw
// OutOfMemoryError if no more files can be opened.
// Threads: functions are re-entrant; an object belongs to one thread. Two threads must not write one target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_descriptor.h"

namespace sluice::storage {

// False when the open file or directory has been removed. Some network file systems count no links: compare with what
// it was when it was opened.
[[nodiscard]] bool has_link(int fd);

// Throws StorageError: "cannot <action> <path>: <errno text>; needs ..., ... free; <advice>". OutOfMemoryError if no
// more files can be opened. needed_bytes = 0: unknown, left out of the text.
[[noreturn]] void throw_storage_error(int error, std::string_view action, const std::filesystem::path& path,
                                      std::uint64_t needed_bytes = 0);

// A new version of `target` that becomes visible whole or not at all. Until commit() the old version stays.
class AtomicFile {
 public:
  // expected_bytes is only for the text of errors. `target` must not exist or be a regular file; a link is followed.
  explicit AtomicFile(const std::filesystem::path& target, std::uint64_t expected_bytes = 0);
  ~AtomicFile();  // without commit(): removes the temporary
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();  // fsync, rename, fsync of the folder; at most once

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  std::uint64_t expected_bytes_;
  FileDescriptor file_;
};

// Refuses to write over a file that is read, and into a checkpoint, with a ConfigError. option: for the message.
void check_output(const char* option, const std::filesystem::path& out,
                  const std::vector<std::filesystem::path>& inputs);

void write_text_atomically(const std::filesystem::path& target, std::string_view text);

// Makes created, renamed and removed entries of `folder` durable.
void sync_directory(const std::filesystem::path& folder);

// Like mkdir -p; StorageError instead of filesystem_error.
void make_directories(const std::filesystem::path& folder);

[[nodiscard]] FileDescriptor open_for_reading(const std::filesystem::path& file);
[[nodiscard]] std::string read_text(const std::filesystem::path& file);

// Throws StorageError when the file system of `folder` (which must exist) has less than `needed_bytes` left.
void require_free_space(const std::filesystem::path& folder, std::uint64_t needed_bytes);

}  // namespace sluice::storage
