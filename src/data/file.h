// file: reads whole data-set files and reports defects. No LibTorch, because the fuzzers build it. Errors: DataError,
// which names the file, the defect and an action; OutOfMemoryError if no more files can be opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace sluice::data {

// Throws DataError if this user may not access the file.
[[nodiscard]] bool is_there(const std::filesystem::path& file);

// Returns the whole content. Rejects a file larger than max_bytes before any allocation.
[[nodiscard]] std::vector<std::uint8_t> read_bytes(const std::filesystem::path& file, std::uint64_t max_bytes);

// Throws OutOfMemoryError if the system cannot open more files; callers would report a defect of the file.
void check_open_files(const std::filesystem::path& file, const std::error_code& error);

[[noreturn]] void reject_unreadable(const std::filesystem::path& file, const std::error_code& error);
// advice: what to do unless the permissions are wrong.
[[noreturn]] void reject_unlistable(const std::filesystem::path& folder, const std::error_code& error,
                                    std::string_view advice);

[[noreturn]] void reject_file(std::string_view name, const std::string& what);
[[noreturn]] void reject_file(std::string_view name, const std::string& what, std::string_view advice);

// The same for a file of a public data set, which can be downloaded again.
[[noreturn]] void reject_download(std::string_view name, const std::string& what);

}  // namespace sluice::data
