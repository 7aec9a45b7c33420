// liveness_peer: one process of a run, for tests that kill and stop processes.
//
// usage: liveness_peer RANK SIZE FILE SILENCE_MS HEARTBEAT_MS
//
// FILE passes rank 0's address. Each line of standard input is a command: leave, fail SENTENCE, exit (like a crash).
// Standard output: "joined", "left", "failed", "lost RANK: DESCRIPTION"; after a loss it ends with code 5.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

#include "comm/liveness.h"
#include "core/concat.h"
#include "core/error.h"

namespace sluice::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPoll{5};

void print_line(const std::string& line) { std::cout << line << '\n' << std::flush; }

MeetingPoint meet_in(const std::filesystem::path& file) {
  return {.publish =
              [file](const std::string& text) {
                std::ofstream(file.string() + ".part") << text << '\n';
                std::filesystem::rename(file.string() + ".part", file);
              },
          .look_up =
              [file] {
                while (!std::filesystem::exists(file)) std::this_thread::sleep_for(kPoll);
                std::string text;
                std::getline(std::ifstream(file), text);
                return text;
              }};
}

// Returns nothing if a loss is reported first or the input has ended.
std::optional<std::string> next_command(int loss_event) {
  std::array<pollfd, 2> items{{{loss_event, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
  while (::poll(items.data(), items.size(), -1) < 0) {
  }
  std::string line;
  if ((items[0].revents & POLLIN) != 0 || !std::getline(std::cin, line)) return std::nullopt;
  return line;
}

int run(const World& world, const std::filesystem::path& file, const LivenessOptions& options) {
  const int loss_event = ::eventfd(0, EFD_CLOEXEC);
  const auto on_lost = [&](const LostProcess& lost) {
    print_line(concat("lost ", lost.rank, ": ", lost.describe()));
    const std::uint64_t one = 1;
    if (::write(loss_event, &one, sizeof one) != sizeof one) std::abort();
  };
  Liveness liveness(world, meet_in(file), options, on_lost);
  print_line("joined");
  const auto command = next_command(loss_event);
  if (!command) return static_cast<int>(ExitCode::kPeer);
  if (*command == "exit") ::_exit(1);
  if (command->starts_with("fail ")) {
    liveness.fail(command->substr(5));
    print_line("failed");
    return static_cast<int>(ExitCode::kDiverged);
  }
  liveness.leave();
  if (liveness.wait_for_lost(milliseconds(0))) return static_cast<int>(ExitCode::kPeer);
  print_line("left");
  return 0;
}

}  // namespace
}  // namespace sluice::comm

int main(int argc, char** argv) {
  using sluice::comm::LivenessOptions;
  if (argc != 6) return 2;
  const sluice::comm::World world{.rank = std::atoi(argv[1]), .size = std::atoi(argv[2]), .address = "127.0.0.1"};
  const LivenessOptions options{.heartbeat_interval = std::chrono::milliseconds(std::atoi(argv[5])),
                                .peer_timeout = std::chrono::milliseconds(std::atoi(argv[4]))};
  try {
    return sluice::comm::run(world, argv[3], options);
  } catch (const sluice::Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.exit_code());
  }
}
