// error: failures that a user or the environment can cause, one class per exit code (docs/reference/exit_codes.md). The
// text is one line: what happened, where, and what to do. The constructor joins its arguments.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "core/concat.h"

namespace sluice {

enum class ExitCode : int {
  kDone = 0,
  kDifferent = 1,  // two runs differ: `sluice compare`
  kUsage = 2,
  kData = 3,
  kOutOfMemory = 4,
  kPeer = 5,
  kDiverged = 6,
  kCheckpoint = 7,
  kStorage = 8,
  kBug = 70,
  kInterrupted = 130,
};

class Error : public std::runtime_error {
 public:
  template <typename... Parts>
  explicit Error(ExitCode code, const Parts&... parts) : std::runtime_error(concat(parts...)), code_(code) {}
  [[nodiscard]] ExitCode exit_code() const { return code_; }

  // Returns the error with "`context`: " before its text. The type of the result is Error.
  [[nodiscard]] Error with_context(std::string_view context) const;

 private:
  ExitCode code_;
};

struct ConfigError : Error {
  template <typename... Parts>
  explicit ConfigError(const Parts&... parts) : Error(ExitCode::kUsage, parts...) {}
};
struct DataError : Error {
  template <typename... Parts>
  explicit DataError(const Parts&... parts) : Error(ExitCode::kData, parts...) {}
};
struct OutOfMemoryError : Error {
  template <typename... Parts>
  explicit OutOfMemoryError(const Parts&... parts) : Error(ExitCode::kOutOfMemory, parts...) {}
};
struct PeerError : Error {
  template <typename... Parts>
  explicit PeerError(const Parts&... parts) : Error(ExitCode::kPeer, parts...) {}
};
struct DivergedError : Error {
  template <typename... Parts>
  explicit DivergedError(const Parts&... parts) : Error(ExitCode::kDiverged, parts...) {}
};
// A checkpoint or weights file is damaged or does not fit the model.
struct CheckpointError : Error {
  template <typename... Parts>
  explicit CheckpointError(const Parts&... parts) : Error(ExitCode::kCheckpoint, parts...) {}
};
struct StorageError : Error {
  template <typename... Parts>
  explicit StorageError(const Parts&... parts) : Error(ExitCode::kStorage, parts...) {}
};
// The process saved and stopped because of SIGINT or SIGTERM.
struct InterruptedError : Error {
  template <typename... Parts>
  explicit InterruptedError(const Parts&... parts) : Error(ExitCode::kInterrupted, parts...) {}
};
struct BugError : Error {
  template <typename... Parts>
  explicit BugError(const Parts&... parts) : Error(ExitCode::kBug, parts...) {}
};

inline constexpr std::string_view kRaiseFileLimit =
    "raise the limit on open files (ulimit -n; for the whole machine: sysctl fs.file-max)";
[[nodiscard]] bool is_file_limit(int error);
// Throws OutOfMemoryError with kRaiseFileLimit. `what`: the failed action and, if known, the system's reason.
[[noreturn]] void too_many_open_files(std::string_view what);

}  // namespace sluice
