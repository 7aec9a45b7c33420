// peer_process: real processes (liveness_peer) of a run, which a test commands, kills and stops. The first wait in vain
// takes half a minute, later ones a second. Processes that are left at the end of the test are killed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace sluice::comm::test {

class PeerProcess {
 public:
  explicit PeerProcess(const std::vector<std::string>& arguments);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  void send_command(const std::string& command) const;
  void signal(int number) const;
  // Returns the next line of its output; "" if it has ended or prints nothing in time.
  [[nodiscard]] std::string read_line();
  // Exit code, or minus the signal that ended it. A process that does not end in time is killed, and the test fails.
  [[nodiscard]] int wait();

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::string begun_;  // a line without its end
};

class PeerProcesses {
 public:
  // peer_timeout: silence after which a process counts as hung.
  PeerProcesses(int size, std::chrono::milliseconds peer_timeout,
                std::chrono::milliseconds heartbeat_interval = std::chrono::milliseconds(50));
  ~PeerProcesses();
  PeerProcesses(const PeerProcesses&) = delete;
  PeerProcesses& operator=(const PeerProcesses&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(peers_.size()); }
  [[nodiscard]] PeerProcess& operator[](int rank) { return *peers_[rank]; }

 private:
  std::filesystem::path folder_;
  std::vector<std::unique_ptr<PeerProcess>> peers_;  // [rank]; all have joined
};

}  // namespace sluice::comm::test
