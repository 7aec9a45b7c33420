// file: reads the files of data sets whole, and says what is wrong with them. No LibTorch: the fuzzers build it.
// Not here: what the bytes mean (idx.h, cifar.h).
// Threads: pure. Errors: DataError, one sentence that begins with the file and ends with what to do; OutOfMemoryError
// if no more files can be opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace sluice::data {

// DataError where this user may not look.
[[nodiscard]] bool is_there(const std::filesystem::path& file);

// The whole content. A file larger than max_bytes is refused before anything is allocated.
[[nodiscard]] std::vector<std::uint8_t> read_bytes(const std::filesystem::path& file, std::uint64_t max_bytes);

// Throws OutOfMemoryError if the system opens no more files; a caller would take that for a fault of the file or
// folder.
void check_open_files(const std::filesystem::path& file, const std::error_code& error);

// Throws the DataError of a file that the system does not let us read.
[[noreturn]] void reject_unreadable(const std::filesystem::path& file, const std::error_code& error);

// Throws the DataError of a file that cannot be used. `name` is the file, `what` was found in it.
[[noreturn]] void reject_file(std::string_view name, const std::string& what);
// advice: what to do, instead of the usual advice.
[[noreturn]] void reject_file(std::string_view name, const std::string& what, std::string_view advice);

// The same for a file of a public data set, which can be had again.
[[noreturn]] void reject_download(std::string_view name, const std::string& what);

}  // namespace sluice::data
