// The throughput of a parameter server: bytes per second that workers push and pull over loopback. Workers compute
// nothing. The server does everything that it does in a run (asp, SGD): it checks that pushes are finite, makes an
// update of each, and sends the weights of one version. It also measures the limits of this machine (loopback.h).
//
//   bench_parameter_server [--what server|tcp|frames|memory] [--workers 1] [--megabytes 16] [--shards 4] [--seconds 1]
//                          [--keys DIR] [--repeats 3] [--threads 1] [--shard-threads CORES]
//
// For every line on standard input it measures for --seconds and prints one JSON object; without input it measures
// --repeats times. With RANK, WORLD_SIZE and MASTER_PORT set (bench/sides.py does), rank 0 is the server and the others
// are its workers; else workers are threads. bench/parameter_server.py alternates all of these.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/log.h"
#include "device/cpu_threads.h"
#include "loopback.h"
#include "ps/net/network_link.h"
#include "ps/net/network_server.h"

namespace sluice::ps {
namespace {

constexpr Nanoseconds kForEver = 3'600'000'000'000;
constexpr double kWarmUp = 0.3;  // seconds that do not count

struct Options {
  std::string what = "server";
  int workers = 1;
  double megabytes = 16;
  int shards = 4;
  double seconds = 1;
  std::string keys;
  int repeats = 3;
  int threads = 1;
  int shard_threads = device::available_cores();
  int rank = 0;
  int port = 0;  // 0: workers are threads

  [[nodiscard]] std::int64_t shard_elements() const {
    return std::max<std::int64_t>(static_cast<std::int64_t>(megabytes * (1 << 20)) / 4 / shards, 1);
  }
  [[nodiscard]] std::int64_t bytes() const { return shard_elements() * shards * 4; }
};

Keys keys_in(const std::string& folder) {
  if (folder.empty()) return {};
  Keys keys;
  std::ifstream(folder + "/server.pub") >> keys.server_public;
  std::ifstream(folder + "/server.key") >> keys.server_secret;
  return keys;
}

Tensors tensors_like(const Layout& layout, double value) {
  Tensors tensors{.statistics = at::empty({0})};
  for (const Shard& shard : layout.shards) tensors.shards.push_back(at::full({shard.elements}, value));
  return tensors;
}

// Runs until the server ends the run.
void work(const Options& options, int worker, int port) {
  device::use_cpu_threads(options.threads);
  NetworkLink link({.host = "127.0.0.1",
                    .port = port,
                    .keys = {keys_in(options.keys).server_public, {}},
                    .worker = WorkerId{worker},
                    .connect_timeout = kForEver,
                    .peer_timeout = kForEver});
  Tensors weights = tensors_like(link.layout(), 0);
  const Tensors gradients = tensors_like(link.layout(), 1e-6);
  while (link.next_lease()) {
    try {
      const std::int64_t version = link.pull(weights);
      link.push({.record = {.base_version = version, .examples = 1, .targets = 1}, .tensors = gradients});
    } catch (const StepIsVoid&) {  // the run is over
    }
  }
  link.leave();
}

double cpu_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

class Served {
 public:
  explicit Served(const Options& options)
      : options_(options),
        layout_(make_layout({{"weights", {options.bytes() / 4}, {1}}}, {},
                            {.shards = options.shards, .split_bound = options.shard_elements()})),
        server_(layout_, {at::zeros({options.bytes() / 4})}, at::empty({0}),
                {.policy = preset_policy("asp", options.workers),
                 .optimizer = {.kind = "sgd"},
                 .lr = [](const ServerProgress&) { return 1e-3; },
                 .threads = options.shard_threads}),
        network_(server_, ledger_,
                 {.port = options.port,
                  .keys = keys_in(options.keys),
                  .last_version = std::int64_t{1} << 40,
                  .peer_timeout = kForEver,
                  .connect_timeout = kForEver}) {
    for (int w = 0; w < options.workers && options.port == 0; ++w)
      threads_.emplace_back([this, w, port = network_.port()] { work(options_, w, port); });
  }
  ~Served() {
    network_.end(Over{});
    for (std::thread& thread : threads_) thread.join();
  }

  nlohmann::json measure() {
    serve(kWarmUp);
    const double cpu = cpu_ms();
    const Nanoseconds begin = now_ns();
    const std::map<int, std::int64_t> of_workers = serve(options_.seconds);
    const Nanoseconds took = now_ns() - begin;
    std::int64_t updates = 0, least = of_workers.empty() ? 0 : of_workers.begin()->second;
    for (const auto& [worker, count] : of_workers) {
      updates += count;
      least = std::min(least, count);
    }
    if (static_cast<int>(of_workers.size()) < options_.workers) least = 0;
    return {
        {"bytes_per_s", per_second(2.0 * static_cast<double>(updates * options_.bytes()), took)},
        {"updates_per_s", per_second(static_cast<double>(updates), took)},
        {"least_share", updates > 0 ? static_cast<double>(least * options_.workers) / static_cast<double>(updates) : 0},
        {"cpu_ms", cpu_ms() - cpu}};
  }

 private:
  // The server serves nothing between two measurements, so that all workers wait. Returns the updates of each worker.
  std::map<int, std::int64_t> serve(double seconds) {
    std::map<int, std::int64_t> of_workers;
    const Nanoseconds until = now_ns() + static_cast<Nanoseconds>(seconds * 1e9);
    for (Nanoseconds now = now_ns(); now < until; now = now_ns()) {
      const auto update = network_.next(until - now);
      if (update) ++of_workers[static_cast<int>(update->pushes.front().record.worker)];
    }
    return of_workers;
  }

  Options options_;
  Layout layout_;
  Server server_;
  data::Ledger ledger_{{.samples = 1 << 20}};
  NetworkServer network_;
  std::vector<std::thread> threads_;
};

nlohmann::json measure_limit(const Options& options) {
  const Loopback what{
      .workers = options.workers, .bytes = options.bytes(), .frames = options.shards, .seconds = options.seconds};
  const double cpu = cpu_ms();
  const double rate = options.what == "tcp"      ? tcp_bytes_per_s(what)
                      : options.what == "frames" ? frames_bytes_per_s(what)
                                                 : memory_bytes_per_s(what);
  return {{"bytes_per_s", rate}, {"cpu_ms", cpu_ms() - cpu}};
}

template <typename Measure>
void answer_lines(const Options& options, const Measure& measure) {
  bool is_asked = false;
  const auto answer = [&] { std::cout << measure().dump() << std::endl; };
  for (std::string line; std::getline(std::cin, line); is_asked = true) answer();
  for (int i = 0; !is_asked && i < options.repeats; ++i) answer();
}

void run(const Options& options) {
  if (options.what != "server") {
    answer_lines(options, [&] { return measure_limit(options); });
  } else if (options.rank == 0) {
    Served served(options);
    answer_lines(options, [&] { return served.measure(); });
  } else {
    std::thread worker([&] { work(options, options.rank - 1, options.port); });
    for (std::string line; std::getline(std::cin, line);) std::cout << "{}" << std::endl;
    worker.join();
  }
}

Options parse(int argc, char** argv) {
  CLI::App app("What a parameter server moves in a second, and what loopback carries");
  Options options;
  app.add_option("--what", options.what, "server, or a limit: tcp, frames (ZeroMQ), memory")
      ->check(CLI::IsMember({"server", "tcp", "frames", "memory"}));
  app.add_option("--workers", options.workers)->check(CLI::PositiveNumber);
  app.add_option("--megabytes", options.megabytes, "of weights")->check(CLI::PositiveNumber);
  app.add_option("--shards", options.shards, "of the weights")->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "of each measurement")->check(CLI::PositiveNumber);
  app.add_option("--keys", options.keys, "folder of server.key and server.pub: everything is encrypted");
  app.add_option("--repeats", options.repeats, "without input");
  app.add_option("--threads", options.threads, "of LibTorch, in the server and in each worker");
  app.add_option("--shard-threads", options.shard_threads, "that work on the server's shards at once");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  if (const char* const world = std::getenv("WORLD_SIZE"); world != nullptr && options.what == "server") {
    options.workers = std::atoi(world) - 1;
    options.rank = std::atoi(std::getenv("RANK"));
    options.port = std::atoi(std::getenv("MASTER_PORT"));
  }
  return options;
}

}  // namespace
}  // namespace sluice::ps

int main(int argc, char** argv) try {
  sluice::device::tune_malloc();  // as `sluice` itself does
  sluice::set_log_level(sluice::LogLevel::kWarning);
  const sluice::ps::Options options = sluice::ps::parse(argc, argv);
  sluice::device::use_cpu_threads(options.threads);
  sluice::ps::run(options);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "parameter_server: %s\n", error.what());
  return 2;
}
