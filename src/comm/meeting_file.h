// meeting_file: a file in a folder that all processes of a run see, by which they find rank 0 (`--init file://PATH`).
// Rank 0 writes where it listens; the others read it. One that a dead run has left behind is replaced, and until then
// whoever reads it finds nobody there, or somebody who does not know its run.
// Not here: listening and connecting (processes.h).
// Threads: one. Errors: ConfigError (no such folder), StorageError (the file cannot be written).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace sluice::comm {

struct MeetingNote {
  std::string address;  // of rank 0
  int port = 0;
  std::string run;      // drawn anew at each start
  std::string machine;  // of rank 0: its boot
  std::string host;     // its name
};

// What the file says; nothing when it is not there or says something else.
[[nodiscard]] std::optional<MeetingNote> read_meeting(const std::filesystem::path& file);

// Whether a meeting is on another machine's loopback, to which no way leads.
[[nodiscard]] bool is_out_of_reach(const MeetingNote& meeting);

// Rank 0's: written at once, whole or not at all, and removed again by the destructor, unless another run has replaced
// it.
class MeetingFile {
 public:
  // run: drawn by draw_run().
  MeetingFile(std::filesystem::path file, const std::string& address, int port, std::string run);
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

 private:
  std::filesystem::path file_;
  std::string run_;
};

[[nodiscard]] std::string draw_run();

}  // namespace sluice::comm
