// gzip: text as a .gz file holds it. Not here: reading data sets (data/file.h). Pure. Errors: OutOfMemoryError.
#pragma once

#include <string>
#include <string_view>

namespace sluice::storage {

[[nodiscard]] std::string gzip(std::string_view text);

}  // namespace sluice::storage
