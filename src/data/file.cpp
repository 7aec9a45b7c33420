#include "data/file.h"

#include <cerrno>
#include <fstream>
#include <system_error>

#include "core/concat.h"
#include "core/error.h"

namespace sluice::data {
namespace {

// First folder on the path to `file` that this user may not enter; empty: none.
std::filesystem::path closed_folder(const std::filesystem::path& file) {
  std::filesystem::path folder;
  for (const auto& part : std::filesystem::absolute(file).parent_path()) {
    folder /= part;
    std::error_code error;
    static_cast<void>(std::filesystem::status(folder / ".", error));
    if (error == std::errc::permission_denied) return folder;
  }
  return {};
}

}  // namespace

void reject_file(std::string_view name, const std::string& what) {
  reject_file(name, what, "correct or replace the file, or point data.path at another one");
}

void reject_file(std::string_view name, const std::string& what, std::string_view advice) {
  throw DataError(name, ": ", what, "; ", advice);
}

void reject_download(std::string_view name, const std::string& what) {
  throw DataError(name, ": ", what, "; fetch the file again or point data.path at an intact copy");
}

void check_open_files(const std::filesystem::path& file, const std::error_code& error) {
  if (is_file_limit(error.value())) too_many_open_files(concat(file.native(), " cannot be read: ", error.message()));
}

void reject_unreadable(const std::filesystem::path& file, const std::error_code& error) {
  check_open_files(file, error);
  if (error != std::errc::permission_denied) {
    throw DataError(file.native(), ": the file cannot be read (", error.message(),
                    "); restore it, or point data.path at an intact copy");
  }
  const std::filesystem::path closed = closed_folder(file);
  throw DataError(file.native(), " cannot be read: ", error.message(), "; change the permissions of ",
                  closed.empty() ? "the file" : concat("folder ", closed.native()),
                  " or point data.path at a copy that this user may read");
}

void reject_unlistable(const std::filesystem::path& folder, const std::error_code& error, std::string_view advice) {
  check_open_files(folder, error);
  const std::string what = concat("the folder cannot be listed (", error.message(), ")");
  if (error != std::errc::permission_denied) reject_file(folder.native(), what, advice);
  reject_file(folder.native(), what,
              concat("let its owner run `chmod a+rx ", folder.native(),
                     "`, or point data.path at a copy that this user may read"));
}

bool is_there(const std::filesystem::path& file) {
  std::error_code error;
  const bool found = std::filesystem::exists(file, error);
  if (error) reject_unreadable(file, error);
  return found;
}

std::vector<std::uint8_t> read_bytes(const std::filesystem::path& file, std::uint64_t max_bytes) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(file, error);
  if (error) reject_unreadable(file, error);
  if (size > max_bytes) reject_file(file.native(), concat("found ", size, " bytes, expected at most ", max_bytes));
  std::ifstream in(file, std::ios::binary);
  if (!in) reject_unreadable(file, {errno, std::generic_category()});
  std::vector<std::uint8_t> bytes(size);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!in) reject_file(file.native(), concat("reading ended after ", in.gcount(), " of ", size, " bytes"));
  return bytes;
}

}  // namespace sluice::data
