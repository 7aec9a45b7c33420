#include "app/process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "core/concat.h"
#include "core/log.h"
#include "pipeline/failure.h"

namespace sluice::app {
namespace {

// torchrun shows the text of the earliest of its workers' error files as the cause. The rename avoids a half-written
// file.
void report_to_torchrun(const std::string& message) {
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

// --- Code that runs before main(). It must not use anything that a library initialises, not even getenv().

constexpr std::array kStopping{SIGINT, SIGTERM, SIGHUP};
constexpr rlim_t kStack = rlim_t{8} << 20, kLeastStack = rlim_t{128} << 10;
constexpr rlim_t kMostFiles = 65536;
constexpr const char* kShortSpin = "GOMP_SPINCOUNT=3000";

void open_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));  // lowest free number
  }
}

void raise_limit(__rlimit_resource resource, rlim_t wanted) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(limit.rlim_max, wanted);
  ::setrlimit(resource, &limit);
}

// With a tiny stack, LibTorch's initialisers end the process by SIGSEGV.
void refuse_tiny_stack() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeastStack) return;
  constexpr std::string_view kLine =
      "sluice: the stack limit is below the 128 KiB that LibTorch needs; raise it (ulimit -s 8192)\n";
  static_cast<void>(!::write(STDERR_FILENO, kLine.data(), kLine.size()));
  ::_exit(static_cast<int>(ExitCode::kOutOfMemory));
}

void set_large_thread_stacks() {
  pthread_attr_t attributes;
  std::size_t size = 0;
  if (::pthread_getattr_default_np(&attributes) != 0) return;
  if (::pthread_attr_getstacksize(&attributes, &size) == 0 && size < kStack &&
      ::pthread_attr_setstacksize(&attributes, kStack) == 0)
    ::pthread_setattr_default_np(&attributes);
  ::pthread_attr_destroy(&attributes);
}

bool is_set(char** environment, std::string_view name) {
  for (char** entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.starts_with(name) && text.substr(name.size()).starts_with('=')) return true;
  }
  return false;
}

std::string_view command_of(char** argv) {
  if (argv[0] == nullptr) return {};
  char** word = argv + 1;
  while (*word != nullptr && **word == '-') ++word;
  return *word != nullptr ? std::string_view(*word) : std::string_view();
}

void block_stop_signals(int how) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : kStopping) ::sigaddset(&signals, signal);
  ::sigprocmask(how, &signals, nullptr);
}

// Returns only on failure, which only costs speed.
void start_again_with_short_spin(char** argv, char** environment) {
  static std::array<char*, 4096> longer;  // static: the stack may be small
  std::size_t size = 0;
  while (environment[size] != nullptr && size + 2 < longer.size()) {
    longer[size] = environment[size];
    ++size;
  }
  if (environment[size] != nullptr) return;
  longer[size] = const_cast<char*>(kShortSpin);
  // The own path shows the name in `ps` and `pgrep`. The fallback is for a file that was moved or replaced.
  static std::array<char, PATH_MAX> path;
  if (::readlink("/proc/self/exe", path.data(), path.size() - 1) > 0) ::execve(path.data(), argv, longer.data());
  ::execve("/proc/self/exe", argv, longer.data());
}

void end_as_interrupted(int) {
  constexpr std::string_view kLine = "sluice: stopped by a signal while it started; nothing was done\n";
  static_cast<void>(!::write(STDERR_FILENO, kLine.data(), kLine.size()));
  ::_exit(static_cast<int>(ExitCode::kInterrupted));
}

void end_with_130_when_stopped() {
  struct sigaction end {};
  end.sa_handler = end_as_interrupted;
  for (const int signal : kStopping) {
    struct sigaction before {};
    const bool is_ignored =
        ::sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;  // for example by nohup
    if (!is_ignored) ::sigaction(signal, &end, nullptr);
  }
}

void prepare_process(int, char** argv, char** environment) {
  open_standard_descriptors();
  raise_limit(RLIMIT_NOFILE, kMostFiles);
  raise_limit(RLIMIT_STACK, kStack);
  refuse_tiny_stack();
  set_large_thread_stacks();
  const std::string_view command = command_of(argv);
  // `schedule` does not compute with LibTorch, and a restart would take longer than its work.
  if (command != "schedule" && !is_set(environment, "GOMP_SPINCOUNT") && !is_set(environment, "OMP_WAIT_POLICY")) {
    block_stop_signals(SIG_BLOCK);
    start_again_with_short_spin(argv, environment);
  }
  constexpr std::array<std::string_view, 4> kThatStop{"train", "serve", "tune", "memory"};
  if (std::ranges::find(kThatStop, command) != kThatStop.end()) end_with_130_when_stopped();
  block_stop_signals(SIG_UNBLOCK);
}

[[gnu::section(".preinit_array"), gnu::used]] void (*g_prepare)(int, char**, char**) = prepare_process;

bool needs_its_threads(const void* caller) {
  Dl_info library{};
  if (::dladdr(caller, &library) == 0 || library.dli_fname == nullptr) return false;
  const std::string_view name(library.dli_fname);
  return name.find("libgomp") != std::string_view::npos || name.find("libzmq") != std::string_view::npos;
}

}  // namespace

std::span<const Variable> default_environment() {
  static constexpr std::array kVariables{Variable{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
                                         Variable{"TORCH_NCCL_ENABLE_MONITORING", "0"},
                                         Variable{"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"},
                                         Variable{"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"},
                                         Variable{"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "1"},
                                         Variable{"NCCL_RUNTIME_CONNECT", "0"},
                                         Variable{"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
                                         Variable{"TORCH_CPP_LOG_LEVEL", "FATAL"},
                                         Variable{"KINETO_LOG_LEVEL", "99"},
                                         Variable{"RES_OPTIONS", "timeout:1 attempts:2"}};
  return kVariables;
}

void settle_environment() {
  for (const auto& [name, value] : default_environment()) ::setenv(name, value, /*overwrite=*/0);
}

void refuse_too_large_files() { std::signal(SIGXFSZ, SIG_IGN); }

void turn_broken_pipes_into_errors() { std::signal(SIGPIPE, SIG_IGN); }

void end_with(const Error& error) {
  static std::mutex first_only;  // never released: the first caller ends the process
  first_only.lock();
  show_progress("");
  log_error(error.what());
  report_to_torchrun(error.what());
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(error.exit_code()));
}

}  // namespace sluice::app

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* with) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  const int error = real(thread, attributes, start, with);
  if (error == EAGAIN && sluice::app::needs_its_threads(__builtin_return_address(0))) {
    const std::system_error refused(error, std::generic_category());
    sluice::app::end_with(sluice::pipeline::describe_failure(std::make_exception_ptr(refused), "sluice"));
  }
  return error;
}
