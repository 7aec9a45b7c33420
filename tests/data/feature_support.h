// feature_support: rows that identify their key, and the unnamed file, for tests of the feature cache.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "data/feature_key.h"

namespace sluice::test {

using Bytes = std::vector<std::byte>;

// Pseudo-random bytes of a key; `salt` distinguishes prefixes.
inline Bytes row_of(const data::FeatureKey& key, std::uint64_t size, std::uint64_t salt = 0) {
  std::minstd_rand random(static_cast<std::uint32_t>(data::hash_of(key) + splitmix64(salt + 1)));
  Bytes row(size);
  for (std::byte& byte : row) byte = static_cast<std::byte>(random() >> 8U);
  return row;
}

inline Bytes rows_of(const std::vector<data::FeatureKey>& keys, std::uint64_t size, std::uint64_t salt = 0) {
  Bytes rows;
  for (const auto& key : keys) {
    const Bytes row = row_of(key, size, salt);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

inline std::vector<data::FeatureKey> keys_between(std::int64_t begin, std::int64_t end, int view = 0) {
  std::vector<data::FeatureKey> keys;
  for (std::int64_t sample = begin; sample < end; ++sample) keys.push_back({sample, view});
  return keys;
}

// This process's open files without a name in the folder, as paths that can be opened.
inline std::vector<std::filesystem::path> unnamed_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    const std::string target = std::filesystem::read_symlink(entry.path(), closed);
    if (target.starts_with(folder.string() + "/") && target.ends_with(" (deleted)")) found.push_back(entry.path());
  }
  return found;
}

inline std::uint64_t size_of(const std::filesystem::path& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

inline std::uint64_t blocks_of(const std::filesystem::path& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_blocks) * 512 : 0;
}

inline void damage(const std::filesystem::path& file, std::uint64_t begin, std::uint64_t count) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  Bytes bytes(count);
  if (::pread(descriptor, bytes.data(), count, static_cast<off_t>(begin)) < 0) return;
  for (std::byte& byte : bytes) byte = ~byte;
  if (::pwrite(descriptor, bytes.data(), count, static_cast<off_t>(begin)) < 0) return;
  ::close(descriptor);
}

// Runs `body` in a child. 0: it returned 0 and no expectation in it failed; 128 and more: the signal that ended it.
inline int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);  // else the child would print what waits in the buffers once more
  const pid_t child = ::fork();
  if (child == 0) {
    int code = body();
    if (code == 0 && testing::Test::HasFailure()) code = 1;
    std::fflush(nullptr);
    ::_exit(code);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline std::string log_of(const std::function<void()>& action) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

inline std::int64_t warnings_in(const std::string& log) {
  std::int64_t count = 0;
  for (auto at = log.find("warning"); at != std::string::npos; at = log.find("warning", at + 1)) ++count;
  return count;
}

// Limits the size of files that this process writes, so that a write fails as on a full disk.
inline void limit_files(std::uint64_t bytes) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, bytes};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
}

}  // namespace sluice::test
