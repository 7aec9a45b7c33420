// Any bytes as a table of each kind, chosen by the first byte: refused in one line, or every row has the wanted cells.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/error.h"
#include "data/table.h"

namespace {

void require(bool ok) {
  if (!ok) std::abort();
}

std::filesystem::path file_for(std::string_view ending) {
  return std::filesystem::temp_directory_path() /
         ("sluice-fuzz-table-" + std::to_string(::getpid()) + std::string(ending));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace sluice;
  if (size == 0) return 0;
  constexpr std::string_view kEndings[] = {".csv", ".tsv", ".jsonl"};
  const std::filesystem::path file = file_for(kEndings[bytes[0] % 3]);
  std::ofstream(file, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(bytes) + 1, static_cast<std::streamsize>(size - 1));
  try {
    data::Table table(file, {"b", "a"});
    for (std::vector<data::Table::Row> rows; table.next(rows, 1); rows.clear()) {
      for (const data::Table::Row& row : rows) require(table.cells(row).size() == 2);
    }
  } catch (const Error& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
