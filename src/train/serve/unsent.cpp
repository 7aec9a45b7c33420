#include "train/serve/unsent.h"

#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "report/worker_writer.h"
#include "storage/files.h"
#include "storage/safetensors.h"

namespace sluice::train {
namespace {

constexpr auto kRun = "run";  // key in the file's metadata

std::filesystem::path unsent_file(const UnsentOwner& owner) {
  return report::workers_dir(owner.run_dir) / concat(owner.worker, ".unsent.safetensors");
}

void set_aside(const std::filesystem::path& file) {
  std::filesystem::path aside;
  for (int number = 1; aside.empty() || std::filesystem::exists(aside); ++number)
    aside = concat(file.string(), ".of-another-run-", number);
  std::error_code error;
  std::filesystem::rename(file, aside, error);
  if (error)
    throw StorageError(concat(file.string(), " belongs to another run and cannot be renamed: ", error.message(),
                              "; move it elsewhere"));
  log_warning(file.string(), " is the residual of compressed pushes in another run; it is renamed to ",
              aside.filename().string(), " and not sent");
}

}  // namespace

void save_unsent(const UnsentOwner& owner, const ps::PushCompressor::Named& residuals) {
  if (residuals.empty()) return;
  if (owner.run_dir.empty())
    return log_warning("the residual of compressed pushes is lost with this worker; pass --run-dir to keep it");
  const std::filesystem::path file = unsent_file(owner);
  try {
    storage::make_directories(file.parent_path());
    static_cast<void>(storage::write_safetensors(file, residuals, {{"format", "pt"}, {kRun, owner.run}}));
    log_info("the residual of compressed pushes is in ", file.string(), "; this worker reads it when it starts again");
  } catch (const Error& error) {
    log_warning("the residual of compressed pushes is lost: ", error.what());
  }
}

ps::PushCompressor::Named take_unsent(const UnsentOwner& owner, const ps::Compression& pushes) {
  const std::filesystem::path file = unsent_file(owner);
  if (owner.run_dir.empty() || !std::filesystem::exists(file)) return {};
  if (!pushes.loses()) {
    log_warning("the residual of compressed pushes stays in ", file.string(),
                ": it is not sent with ps.push_compression = \"none\"");
    return {};
  }
  storage::SafetensorsFile unsent = storage::read_safetensors(file);
  if (unsent.metadata[kRun] != owner.run) {
    set_aside(file);
    return {};
  }
  std::error_code error;
  std::filesystem::remove(file, error);
  if (error)
    throw StorageError("cannot remove ", file.string(), ": ", error.message(),
                       "; remove it or move it elsewhere, because it would be sent twice");
  log_info("continuing with the residual of compressed pushes from ", file.string());
  return std::move(unsent.tensors);
}

}  // namespace sluice::train
