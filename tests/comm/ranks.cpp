#include "comm/ranks.h"

#include <unistd.h>

#include <csignal>
#include <random>
#include <thread>

#include "comm/socket_address.h"
#include "core/concat.h"
#include "core/error.h"

namespace sluice::comm::test {

// Below the ephemeral ports, which an outgoing connection might take meanwhile.
int free_port() {
  std::random_device random;
  for (;;) {
    const int port = std::uniform_int_distribution(16'000, 32'000)(random);
    try {
      ::close(listen_on("127.0.0.1", port));
      return port;
    } catch (const Error&) {
      continue;  // somebody listens there
    }
  }
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
