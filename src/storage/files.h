// files: file operations that must not lose data: atomic replacement, fsync, checks of free space.
// Threads: functions are re-entrant; an object belongs to one thread. Two threads must not write one target.
// Errors: writing throws StorageError with the path, the bytes needed and free, and what to do. Reading throws
// CheckpointError, or StorageError if the disk fails. OutOfMemoryError if the process can open no more files.
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

// False if the open file was removed. Some network file systems count no links: compare with the value at opening.
[[nodiscard]] bool has_link(int fd);

// "cannot <action> <path>: <errno text>; needs ..., ... free; <advice>". needed_bytes = 0: unknown, omitted.
[[noreturn]] void throw_storage_error(int error, std::string_view action, const std::filesystem::path& path,
                                      std::uint64_t needed_bytes = 0);

// Writes a new version of `target` that becomes visible as a whole at commit(). Until then the old version stays.
class AtomicFile {
 public:
  // expected_bytes is used only in error texts. `target` must not exist or must be a regular file; links are followed.
  explicit AtomicFile(const std::filesystem::path& target, std::uint64_t expected_bytes = 0);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();  // fsync, rename, fsync of the folder; call at most once

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  std::uint64_t expected_bytes_;
  FileDescriptor file_;
};

// Throws ConfigError if `out` is one of `inputs` or lies in a checkpoint. option: for the message.
void check_output(const char* option, const std::filesystem::path& out,
                  const std::vector<std::filesystem::path>& inputs);

void write_text_atomically(const std::filesystem::path& target, std::string_view text);

void sync_directory(const std::filesystem::path& folder);

void make_directories(const std::filesystem::path& folder);

[[nodiscard]] FileDescriptor open_for_reading(const std::filesystem::path& file);
[[nodiscard]] std::string read_text(const std::filesystem::path& file);

// Throws StorageError if the file system of the existing `folder` has less than `needed_bytes` free.
void require_free_space(const std::filesystem::path& folder, std::uint64_t needed_bytes);

}  // namespace sluice::storage
