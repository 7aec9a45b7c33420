#include "train/trace/trace_files.h"

#include <system_error>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "storage/files.h"
#include "storage/gzip.h"

namespace sluice::train {
namespace {

std::vector<int> write(const std::vector<std::string>& texts, const TraceFile& file) {
  std::vector<int> written;
  for (int rank = 0; rank < static_cast<int>(texts.size()); ++rank) {
    if (texts[rank].empty()) {
      log_warning("the trace of rank ", rank, " is lost; the run continues");
      continue;
    }
    storage::write_text_atomically(file(rank), texts[rank]);
    written.push_back(rank);
  }
  return written;
}

}  // namespace

std::filesystem::path trace_file_beside(const std::filesystem::path& file, int rank, int processes) {
  if (processes == 1) return file;
  const std::string name = file.filename().string();
  const std::size_t ending = name.rfind(".json");
  return file.parent_path() / concat(name.substr(0, ending), ".rank", rank, name.substr(ending));
}

std::string packed_text(std::string text, const std::filesystem::path& file) {
  if (file.extension() != ".gz" || text.empty()) return text;
  return storage::gzip(text);
}

std::vector<std::string> gather_trace(const comm::Communicator* others, std::string text) {
  if (others != nullptr) return comm::gather_texts(*others, text, /*root=*/0);
  return {std::move(text)};
}

bool write_gathered(const std::vector<std::string>& texts, const TraceFile& file, const std::string& what) {
  try {
    const std::vector<int> written = write(texts, file);
    if (written.empty()) return false;
    log_info(what, " written to ", file(written.front()).string(),
             written.size() > 1 ? concat(" and ", written.size() - 1, " more, one for each process") : "");
    return true;
  } catch (const Error& error) {
    log_warning("the trace is lost; the run continues: ", error.what());
    return false;
  }
}

void remove_traces_beyond(int processes, const std::map<int, std::filesystem::path>& there) {
  std::error_code ignored;
  for (const auto& [rank, file] : there) {
    if (rank >= processes) std::filesystem::remove(file, ignored);
  }
}

}  // namespace sluice::train
