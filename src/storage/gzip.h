// gzip: compresses text into the content of a .gz file. Errors: OutOfMemoryError.
#pragma once

#include <string>
#include <string_view>

namespace sluice::storage {

[[nodiscard]] std::string gzip(std::string_view text);

}  // namespace sluice::storage
