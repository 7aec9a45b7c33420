// What a parameter server moves: bytes that workers push and pull in a second, over loopback, beside what a plain TCP
// stream and ZeroMQ itself carry in the same run. Workers compute nothing; the server does all that it does in a run:
// checks that pushes are finite, adds them up, makes an SGD update, hands weights out.
//
//   bench_parameter_server [--megabytes 16] [--workers 1,2,4,8] [--seconds 2] [--rounds 3] [--shards 4]
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>

#include "comm/socket_address.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/median.h"
#include "ps/net/network_link.h"
#include "ps/net/network_server.h"

namespace sluice::ps {
namespace {

struct Options {
  std::int64_t megabytes = 16;
  std::vector<int> workers = {1, 2, 4, 8};
  double seconds = 2;
  int rounds = 3;
  int shards = 4;
};

// One direction at a time: what a connection of this machine to itself carries.
double tcp_bytes_per_s(const Options& options) {
  const int listener = comm::listen_on("127.0.0.1", 0);
  const int port = comm::own_address(listener).port;
  std::vector<char> buffer(static_cast<std::size_t>(options.megabytes) << 20, 'x');
  std::atomic<bool> is_over = false;
  std::thread sender([&] {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      while (!is_over && ::send(fd, buffer.data(), buffer.size(), MSG_NOSIGNAL) > 0) {
      }
    }
    ::close(fd);
  });
  const int fd = ::accept(listener, nullptr, nullptr);
  std::vector<char> room(1 << 20);
  std::int64_t bytes = 0;
  const Nanoseconds begin = now_ns();
  while (to_s(now_ns() - begin) < options.seconds)
    bytes += std::max<ssize_t>(::recv(fd, room.data(), room.size(), 0), 0);
  const double rate = per_second(static_cast<double>(bytes), now_ns() - begin);
  is_over = true;
  ::close(fd);
  ::close(listener);
  sender.join();
  return rate;
}

// Frames of a shard's size, one direction.
double zmq_bytes_per_s(const Options& options) {
  const std::int64_t bytes = (options.megabytes << 20) / options.shards;
  const FrameSocket::Limits limits{.frame_bytes = bytes};
  FrameSocket server(FrameSocket::Role::kServer, {}, limits);
  const int port = server.listen("127.0.0.1", 0);
  std::atomic<bool> is_over = false;
  std::thread sender([&] {
    FrameSocket worker(FrameSocket::Role::kWorker, "sender", limits);
    worker.connect("127.0.0.1", port);
    const Frames frames{frame_of(at::zeros({bytes / 4}))};
    while (!is_over) {
      worker.send({}, frames);
      std::this_thread::yield();
    }
  });
  std::int64_t received = 0;
  const Nanoseconds begin = now_ns();
  while (to_s(now_ns() - begin) < options.seconds) {
    server.wait(std::chrono::milliseconds(10));
    while (server.next()) received += bytes;
  }
  is_over = true;
  sender.join();
  return per_second(static_cast<double>(received), now_ns() - begin);
}

struct Rate {
  double bytes_per_s = 0;  // both directions, of the server
  double least_share = 0;  // of the worker that got least, of an equal one
};

Rate server_rate(const Options& options, int workers, const Keys& keys) {
  const std::int64_t elements = (options.megabytes << 20) / 4;
  const Layout layout = make_layout({{"weights", {elements}, {1}}}, {},
                                    {.shards = options.shards, .split_bound = elements / options.shards});
  Server server(layout, {at::zeros({elements})}, at::empty({0}),
                {.policy = preset_policy("asp", workers),
                 .optimizer = {.kind = "sgd"},
                 .lr = [](const ServerProgress&) { return 1e-3; }});
  data::Ledger ledger({.samples = 1 << 20});
  NetworkServer network(server, ledger, {.keys = keys, .last_version = std::int64_t{1} << 40, .farewell = 100'000'000});
  std::atomic<bool> is_over = false;
  std::vector<std::int64_t> steps(static_cast<std::size_t>(workers));
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      NetworkLink link(
          {.host = "127.0.0.1", .port = network.port(), .keys = {keys.server_public, {}}, .worker = WorkerId{w}});
      Tensors weights, gradients;
      for (const Shard& shard : layout.shards) weights.shards.push_back(at::empty({shard.elements}));
      for (const Shard& shard : layout.shards) gradients.shards.push_back(at::full({shard.elements}, 1e-6));
      weights.statistics = gradients.statistics = at::empty({0});
      while (!is_over && link.next_lease()) {
        const std::int64_t version = link.pull(weights);
        link.push({.record = {.base_version = version, .examples = 1, .targets = 1}, .tensors = gradients});
        ++steps[w];
      }
    });
  }
  const auto serve = [&](double seconds) {
    const Nanoseconds until = now_ns() + static_cast<Nanoseconds>(seconds * 1e9);
    while (now_ns() < until) (void)network.next(10'000'000);
  };
  serve(0.5);  // all are there, buffers are warm
  const std::int64_t before = server.progress().version;
  const std::vector<std::int64_t> steps_before = steps;
  const Nanoseconds begin = now_ns();
  serve(options.seconds);
  const auto updates = static_cast<double>(server.progress().version - before);
  const double rate = per_second(2 * updates * static_cast<double>(elements * 4), now_ns() - begin);
  double least = updates;
  for (int w = 0; w < workers; ++w) least = std::min(least, static_cast<double>(steps[w] - steps_before[w]));
  is_over = true;
  serve(0.3);
  network.end(Over{});
  for (std::thread& thread : threads) thread.join();
  return {rate, updates > 0 ? least * workers / updates : 0};
}

void run(const Options& options) {
  const Keys keys = make_keys();
  std::printf("%lld MiB of weights in %d shards; GB/s, medians of %d rounds in which all sides take turns\n",
              static_cast<long long>(options.megabytes), options.shards, options.rounds);
  std::printf("workers  tcp, one way  zeromq, one way  push + pull  of zeromq  least worker's share  with keys\n");
  for (const int workers : options.workers) {
    std::vector<double> tcp, zmq, plain, share, sealed;
    for (int round = 0; round < options.rounds; ++round) {
      tcp.push_back(tcp_bytes_per_s(options));
      zmq.push_back(zmq_bytes_per_s(options));
      const Rate rate = server_rate(options, workers, {});
      plain.push_back(rate.bytes_per_s);
      share.push_back(rate.least_share);
      sealed.push_back(server_rate(options, workers, keys).bytes_per_s);
    }
    std::printf("%7d %13.2f %16.2f %12.2f %9.0f%% %21.2f %10.2f\n", workers, median(tcp) * 1e-9, median(zmq) * 1e-9,
                median(plain) * 1e-9, 100 * median(plain) / median(zmq), median(share), median(sealed) * 1e-9);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace sluice::ps

int main(int argc, char** argv) {
  CLI::App app("What a parameter server moves in a second, beside TCP and ZeroMQ");
  sluice::ps::Options options;
  app.add_option("--megabytes", options.megabytes, "of weights");
  app.add_option("--workers", options.workers, "numbers of workers")->delimiter(',');
  app.add_option("--seconds", options.seconds, "of each measurement");
  app.add_option("--rounds", options.rounds, "of which medians are taken");
  app.add_option("--shards", options.shards, "of the weights");
  CLI11_PARSE(app, argc, argv);
  sluice::set_log_level(sluice::LogLevel::kWarning);
  sluice::ps::run(options);
}
