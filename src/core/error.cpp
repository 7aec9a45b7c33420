#include "core/error.h"

#include <cerrno>

#include "core/check.h"
#include "core/concat.h"

namespace sluice {

Error Error::with_context(std::string_view context) const { return Error(code_, concat(context, ": ", what())); }

bool is_file_limit(int error) { return error == EMFILE || error == ENFILE; }

void too_many_open_files(std::string_view what) { throw OutOfMemoryError(what, "; ", kRaiseFileLimit); }

void check(bool ok, std::string_view expected, std::source_location at) {
  if (ok) return;
  const std::string_view path = at.file_name();
  const auto folder = path.rfind("src/");
  throw BugError("internal error: expected: ", expected, " (",
                 folder == std::string_view::npos ? path : path.substr(folder), ":", at.line(),
                 "); please report it with the log of the run");
}

}  // namespace sluice
