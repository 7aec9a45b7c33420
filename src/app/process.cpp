#include "app/process.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/concat.h"
#include "core/log.h"

namespace sluice::app {
namespace {

// torchrun shows the text of the earliest of its workers' files as the cause. It cannot read half a file.
void tell_torchrun(const std::string& message) {
  const char* file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (file == nullptr || *file == '\0') return;
  const std::string beside = concat(file, ".part");
  const nlohmann::json extra{{"py_callstack", message}, {"timestamp", std::to_string(std::time(nullptr))}};
  const nlohmann::json file_content{{"message", {{"message", message}, {"errorCode", 1}, {"extraInfo", extra}}}};
  std::ofstream out(beside);
  out << file_content.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
  out.close();
  std::error_code ignored;
  if (out) std::filesystem::rename(beside, file, ignored);
}

}  // namespace

void settle_environment(char** argv) {
  // It computes nothing with LibTorch, and a start costs more time than it does itself.
  if (argv[0] != nullptr && argv[1] != nullptr && std::string_view(argv[1]) == "schedule") return;
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
  ::setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  ::setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);  // its profiler calls a machine without a GPU an error
  // Each start loads LibTorch again.
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  ::setenv("GOMP_SPINCOUNT", "3000", /*overwrite=*/0);
  // Under its own path, so that `ps` and `pgrep` know it by its name; it may have been moved or replaced meanwhile.
  std::error_code gone;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", gone);
  if (!gone) ::execv(self.c_str(), argv);
  ::execv("/proc/self/exe", argv);
}

void turn_fatal_writes_into_errors() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void end_with(const Error& error) {
  static std::mutex first_only;  // never released: the first to come ends the process
  first_only.lock();
  show_progress("");
  log_error(error.what());
  tell_torchrun(error.what());
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(error.exit_code()));
}

}  // namespace sluice::app
