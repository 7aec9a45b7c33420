#include "comm/peer_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <thread>

#include "core/check.h"

namespace sluice::comm::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Timeouts of a wait: before and after the first timeout.
milliseconds timeout{30000};
constexpr milliseconds kShortTimeout{1000};

steady_clock::time_point deadline() { return steady_clock::now() + timeout; }
void shorten_timeout() { timeout = kShortTimeout; }

std::filesystem::path new_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "sluice_liveness_XXXXXX").string();
  check(::mkdtemp(name.data()) != nullptr, "a folder for the test can be made");
  return name;
}

}  // namespace

PeerProcess::PeerProcess(const std::vector<std::string>& arguments) {
  std::signal(SIGPIPE, SIG_IGN);  // a process may have ended when it is told something
  std::array<int, 2> input{}, output{};
  check(::pipe2(input.data(), O_CLOEXEC) == 0 && ::pipe2(output.data(), O_CLOEXEC) == 0, "there are pipes");
  std::vector<char*> words{const_cast<char*>(SLUICE_LIVENESS_PEER)};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(input[0], STDIN_FILENO);
    ::dup2(output[1], STDOUT_FILENO);
    ::execv(words[0], words.data());
    ::_exit(127);
  }
  ::close(input[0]);
  ::close(output[1]);
  input_ = input[1];
  output_ = output[0];
}

PeerProcess::~PeerProcess() {
  if (pid_ > 0) {
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(input_);
  ::close(output_);
}

void PeerProcess::send_command(const std::string& command) const {
  const std::string line = command + '\n';
  (void)!::write(input_, line.data(), line.size());
}

void PeerProcess::signal(int number) const { ::kill(pid_, number); }

std::string PeerProcess::read_line() {
  const auto end = deadline();
  for (std::size_t length = 0; (length = begun_.find('\n')) == std::string::npos;) {
    const auto left = std::max(std::chrono::ceil<milliseconds>(end - steady_clock::now()), milliseconds(0));
    pollfd item{output_, POLLIN, 0};
    std::array<char, 4096> bytes{};
    if (::poll(&item, 1, static_cast<int>(left.count())) <= 0) {
      shorten_timeout();
      return {};
    }
    const ssize_t count = ::read(output_, bytes.data(), bytes.size());
    if (count <= 0) return {};
    begun_.append(bytes.data(), count);
  }
  const std::size_t length = begun_.find('\n');
  std::string line = begun_.substr(0, length);
  begun_.erase(0, length + 1);
  return line;
}

int PeerProcess::wait() {
  int status = 0;
  const auto end = deadline();
  while (::waitpid(pid_, &status, WNOHANG) != pid_) {
    if (steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(5));
      continue;
    }
    ADD_FAILURE() << "a process does not end";
    shorten_timeout();
    signal(SIGKILL);
    ::waitpid(pid_, &status, 0);
    break;
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

PeerProcesses::PeerProcesses(int size, std::chrono::milliseconds peer_timeout,
                             std::chrono::milliseconds heartbeat_interval)
    : folder_(new_folder()) {
  for (int rank = 0; rank < size; ++rank) {
    peers_.push_back(std::make_unique<PeerProcess>(
        std::vector<std::string>{std::to_string(rank), std::to_string(size), folder_ / "rank_0",
                                 std::to_string(peer_timeout.count()), std::to_string(heartbeat_interval.count())}));
  }
  for (const auto& peer : peers_) EXPECT_EQ(peer->read_line(), "joined");
}

PeerProcesses::~PeerProcesses() {
  peers_.clear();
  std::filesystem::remove_all(folder_);
}

}  // namespace sluice::comm::test
