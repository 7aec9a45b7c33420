// meeting_file: a file in a shared folder with rank 0's address (`--init file://PATH`). Rank 0 replaces the file of an
// earlier run. A process that still reads the old file finds no listener at its address, or one of another run.
// Threads: one. Errors: ConfigError (no such folder), StorageError (the file cannot be written).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace sluice::comm {

struct MeetingNote {
  std::string address;
  int port = 0;
  std::string run;      // id drawn anew at each start
  std::string machine;  // rank 0's boot id
  std::string host;
};

[[nodiscard]] std::optional<MeetingNote> read_meeting(const std::filesystem::path& file);

// Whether the note names the loopback address of another machine, which cannot be reached.
[[nodiscard]] bool is_out_of_reach(const MeetingNote& meeting);

// Rank 0's file, written atomically. The destructor removes it, unless another run has replaced it.
class MeetingFile {
 public:
  MeetingFile(std::filesystem::path file, const std::string& address, int port, std::string run);
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

  [[nodiscard]] bool is_there() const;  // neither removed nor replaced by another run

 private:
  std::filesystem::path file_;
  std::string run_;
};

[[nodiscard]] std::string draw_run();
// Key of the store at that address, which shows that it belongs to the run.
[[nodiscard]] std::string meeting_key(const std::string& run);

}  // namespace sluice::comm
