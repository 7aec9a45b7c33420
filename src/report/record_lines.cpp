#include "report/record_lines.h"

#include <cerrno>
#include <fstream>
#include <system_error>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "report/record_fields.h"

namespace sluice::report {
namespace {

namespace fs = std::filesystem;

std::ifstream open_records(const fs::path& file) {
  const std::string name = printable(file.string());
  if (!fs::is_regular_file(status_of(file)))
    throw DataError(concat(name, " is no file; give the --run-dir of a `sluice train`"));
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (in.is_open()) return in;
  const std::string reason = errno != 0 ? std::generic_category().message(errno) : "it cannot be opened";
  throw DataError(concat(name, " cannot be read: ", reason, "; check its permissions"));
}

}  // namespace

fs::file_status status_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none)
    throw DataError(concat(printable(path.string()), " cannot be read: ", error.message(),
                           "; check the permissions of it and of the folders above"));
  return status;
}

LineDamage read_records(const fs::path& file, const TakeRecord& take) {
  std::ifstream in = open_records(file);
  LineDamage damage;
  for (std::string line; std::getline(in, line);) {
    const bool is_last = in.eof();  // no line break after it
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto record = nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (const auto event = text_at(record, "event")) {
      take(record, *event);
    } else if (is_last && line.starts_with('{')) {
      damage.is_torn = true;
    } else {
      ++damage.unreadable_lines;
    }
  }
  if (in.bad()) throw DataError(concat(printable(file.string()), " cannot be read to its end; check the disk"));
  return damage;
}

}  // namespace sluice::report
