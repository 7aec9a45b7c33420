#include "train/unsent.h"

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "report/worker_writer.h"
#include "storage/files.h"
#include "storage/safetensors.h"

namespace sluice::train {
namespace {

std::filesystem::path unsent_file(const std::filesystem::path& run_dir, int worker) {
  return report::workers_dir(run_dir) / concat(worker, ".unsent.safetensors");
}

}  // namespace

void save_unsent(const std::filesystem::path& run_dir, int worker, const ps::PushCompressor::Named& residuals) {
  if (residuals.empty()) return;
  if (run_dir.empty())
    return log_warning("what compressed pushes have left out is lost with this worker; --run-dir would keep it");
  const std::filesystem::path file = unsent_file(run_dir, worker);
  try {
    storage::make_directories(file.parent_path());
    static_cast<void>(storage::write_safetensors(file, residuals));
    log_info(concat("what compressed pushes have left out is in ", file.string(),
                    ", for this worker when it is started again"));
  } catch (const StorageError& error) {
    log_warning(concat("what compressed pushes have left out is lost: ", error.what()));
  }
}

ps::PushCompressor::Named take_unsent(const std::filesystem::path& run_dir, int worker) {
  const std::filesystem::path file = unsent_file(run_dir, worker);
  if (run_dir.empty() || !std::filesystem::exists(file)) return {};
  ps::PushCompressor::Named residuals = storage::read_safetensors(file).tensors;
  std::error_code error;
  std::filesystem::remove(file, error);
  if (error)
    throw StorageError(concat("cannot remove ", file.string(), ": ", error.message(),
                              "; it would count twice, so remove it, or move it away"));
  log_info(concat("going on with what compressed pushes had left out, from ", file.string()));
  return residuals;
}

}  // namespace sluice::train
