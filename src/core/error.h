// error: what can go wrong outside our code, one class per exit code of the command line (docs/errors.md).
// Not here: bugs of ours; those are check() in core/check.h.
// The text of an Error is one line: what, where (file, key, replica, stage, step), and what to do.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

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
  Error(ExitCode code, const std::string& what) : std::runtime_error(what), code_(code) {}
  [[nodiscard]] ExitCode exit_code() const { return code_; }

  // The same kind of error with `context` put before its text; keeps the exit code.
  [[nodiscard]] Error with_context(std::string_view context) const;

 private:
  ExitCode code_;
};

// Bad usage or configuration.
struct ConfigError : Error {
  explicit ConfigError(const std::string& what) : Error(ExitCode::kUsage, what) {}
};
// A data file that is missing, truncated, oversized or mislabelled.
struct DataError : Error {
  explicit DataError(const std::string& what) : Error(ExitCode::kData, what) {}
};
struct OutOfMemoryError : Error {
  explicit OutOfMemoryError(const std::string& what) : Error(ExitCode::kOutOfMemory, what) {}
};
// A lost peer, failed communication, or a step that hangs.
struct PeerError : Error {
  explicit PeerError(const std::string& what) : Error(ExitCode::kPeer, what) {}
};
// The loss is NaN or infinite.
struct DivergedError : Error {
  explicit DivergedError(const std::string& what) : Error(ExitCode::kDiverged, what) {}
};
// A checkpoint or weights file that is damaged or does not fit the model.
struct CheckpointError : Error {
  explicit CheckpointError(const std::string& what) : Error(ExitCode::kCheckpoint, what) {}
};
// A disk that is full or read-only.
struct StorageError : Error {
  explicit StorageError(const std::string& what) : Error(ExitCode::kStorage, what) {}
};
// Asked to stop (SIGINT, SIGTERM) and did, after saving.
struct InterruptedError : Error {
  explicit InterruptedError(const std::string& what) : Error(ExitCode::kInterrupted, what) {}
};
// A broken promise inside Sluice.
struct BugError : Error {
  explicit BugError(const std::string& what) : Error(ExitCode::kBug, what) {}
};

// What to do if neither a file nor a socket can be opened any more.
inline constexpr std::string_view kRaiseFileLimit =
    "raise the limit on open files (ulimit -n; of the whole machine the sysctl fs.file-max)";
// Whether this errno says so: EMFILE or ENFILE.
[[nodiscard]] bool is_file_limit(int error);
// Throws the OutOfMemoryError. what: what cannot be done, and the system's reason if it gave one.
[[noreturn]] void too_many_open_files(std::string_view what);

}  // namespace sluice
