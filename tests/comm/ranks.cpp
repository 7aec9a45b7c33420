#include "comm/ranks.h"

#include <unistd.h>

#include <csignal>
#include <thread>

#include "comm/socket_address.h"
#include "core/concat.h"
#include "core/error.h"

namespace sluice::comm::test {

int free_port() {
  const int fd = listen_on("127.0.0.1", 0);
  const int port = own_address(fd).port;
  ::close(fd);
  return port;
}

World world_of(int rank, int size, int port) {
  return {.rank = rank, .size = size, .address = "127.0.0.1", .port = port, .interface = {}};
}

std::vector<std::string> run_ranks(int size, const std::function<void(int rank)>& body) {
  std::signal(SIGPIPE, SIG_IGN);  // as Processes asks for
  std::vector<std::string> failures(size);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const Error& error) {
        failures[rank] = concat(static_cast<int>(error.exit_code()), ": ", error.what());
      }
    });
  }
  threads.clear();
  return failures;
}

}  // namespace sluice::comm::test
