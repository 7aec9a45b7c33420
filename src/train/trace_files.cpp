#include "train/trace_files.h"

#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "storage/files.h"
#include "storage/gzip.h"

namespace sluice::train {
namespace {

// The ranks whose text is there.
std::vector<int> write(const std::vector<std::string>& texts, const TraceFile& file) {
  std::vector<int> written;
  for (int rank = 0; rank < static_cast<int>(texts.size()); ++rank) {
    if (texts[rank].empty()) {
      log_warning(concat("the trace of rank ", rank, " is lost, the run goes on"));
      continue;
    }
    storage::write_text_atomically(file(rank), texts[rank]);
    written.push_back(rank);
  }
  return written;
}

}  // namespace

void write_trace_files(const comm::Communicator* others, const std::string& own, const TraceFile& file,
                       const std::string& what) {
  const int rank = others == nullptr ? 0 : others->rank();
  const bool is_compressed = file(rank).extension() == ".gz" && !own.empty();
  std::vector<std::string> texts{is_compressed ? storage::gzip(own) : own};
  if (others != nullptr) texts = comm::gather_texts(*others, texts.front(), /*root=*/0);
  if (rank != 0) return;
  try {
    const std::vector<int> written = write(texts, file);
    if (written.empty()) return;
    log_info(concat(what, " written to ", file(written.front()).string(),
                    written.size() > 1 ? concat(" and ", written.size() - 1, " more, one of each process") : ""));
  } catch (const StorageError& error) {
    log_warning(concat("the trace is lost, the run goes on: ", error.what()));
  }
}

}  // namespace sluice::train
