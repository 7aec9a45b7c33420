// error: what can go wrong outside our code, one class per exit code of the command line (docs/errors.md).
// Not here: bugs of ours; those are check() in core/check.h.
// The text of an Error is one line: what, where (file, key, replica, stage, step), and what to do. It is made of parts,
// which are written one behind the other: ConfigError(key, " = ", value, " must be positive").
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "core/concat.h"

namespace sluice {

enum class ExitCode : int {
  kDone = 0,
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
  Error(ExitCode code, const Parts&... parts) : std::runtime_error(concat(parts...)), code_(code) {}
  [[nodiscard]] ExitCode exit_code() const { return code_; }

  // The same kind of error with `context` put before its text; keeps the exit code.
  [[nodiscard]] Error with_context(std::string_view context) const;

 private:
  ExitCode code_;
};

// Bad usage or configuration.
struct ConfigError : Error {
  template <typename... Parts>
  explicit ConfigError(const Parts&... parts) : Error(ExitCode::kUsage, parts...) {}
};
// A data file that is missing, truncated, oversized or mislabelled.
struct DataError : Error {
  template <typename... Parts>
  explicit DataError(const Parts&... parts) : Error(ExitCode::kData, parts...) {}
};
struct OutOfMemoryError : Error {
  template <typename... Parts>
  explicit OutOfMemoryError(const Parts&... parts) : Error(ExitCode::kOutOfMemory, parts...) {}
};
// A lost peer, failed communication, or a step that hangs.
struct PeerError : Error {
  template <typename... Parts>
  explicit PeerError(const Parts&... parts) : Error(ExitCode::kPeer, parts...) {}
};
// The loss is NaN or infinite.
struct DivergedError : Error {
  template <typename... Parts>
  explicit DivergedError(const Parts&... parts) : Error(ExitCode::kDiverged, parts...) {}
};
// A checkpoint or weights file that is damaged or does not fit the model.
struct CheckpointError : Error {
  template <typename... Parts>
  explicit CheckpointError(const Parts&... parts) : Error(ExitCode::kCheckpoint, parts...) {}
};
// A disk that is full or read-only.
struct StorageError : Error {
  template <typename... Parts>
  explicit StorageError(const Parts&... parts) : Error(ExitCode::kStorage, parts...) {}
};
// Asked to stop (SIGINT, SIGTERM) and did, after saving.
struct InterruptedError : Error {
  template <typename... Parts>
  explicit InterruptedError(const Parts&... parts) : Error(ExitCode::kInterrupted, parts...) {}
};
// A broken promise inside Sluice.
struct BugError : Error {
  template <typename... Parts>
  explicit BugError(const Parts&... parts) : Error(ExitCode::kBug, parts...) {}
};

// What to do if neither a file nor a socket can be opened any more.
inline constexpr std::string_view kRaiseFileLimit =
    "raise the limit on open files (ulimit -n; of the whole machine the sysctl fs.file-max)";
// Whether this errno says so: EMFILE or ENFILE.
[[nodiscard]] bool is_file_limit(int error);
// Throws the OutOfMemoryError. what: what cannot be done, and the system's reason if it gave one.
[[noreturn]] void too_many_open_files(std::string_view what);

}  // namespace sluice
