#include "measure/measure_server.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "core/check.h"
#include "core/clock.h"
#include "core/median.h"
#include "data/ledger.h"
#include "device/cpu_threads.h"
#include "measure/cold_caches.h"
#include "measure/time_sizes.h"
#include "pipeline/failure.h"
#include "profiler/affine_fit.h"
#include "ps/net/network_link.h"
#include "ps/net/network_server.h"
#include "ps/policy/sync_policy.h"
#include "ps/worker_sync.h"

namespace sluice::measure {
namespace {

constexpr int kWarmUpSteps = 3, kTimedSteps = 15;
constexpr ps::WorkerId kWorker{0};
constexpr Nanoseconds kServerTimeout = 30'000'000'000;  // if the other end has failed

comm::SyncedStage one_parameter(const ServerSetup& setup, std::uint64_t bytes) {
  const auto elements = static_cast<std::int64_t>(bytes / c10::elementSize(setup.dtype));
  const auto options = at::TensorOptions(setup.dtype).device(device::torch_device(setup.device));
  return {.stage = StageId{0},
          .extents = {{.param = ParamId{0},
                       .begin = 0,
                       .end = elements,
                       .name = "weights",
                       .tied_to = {},
                       .sizes = {elements},
                       .strides = {1}}},
          .values = {at::zeros({elements}, options)},
          .gradients = {at::rand({elements}, options)},
          .devices = {setup.device}};
}

ps::ServerOptions options_of_server(const ServerSetup& setup, const ps::SyncPolicy& policy) {
  ps::ServerOptions options = setup.server;
  options.policy = policy;
  if (!options.lr) options.lr = [](const ps::ServerProgress&) { return 1e-3; };
  options.threads = device::available_cores();
  return options;
}

ps::Layout measured_layout(const ServerSetup& setup, const comm::SyncedStage& stage) {
  return ps::layout_of({stage}, {.shards = setup.shards});
}

// The parts of a round in seconds, from the end of a backward until the new weights arrive.
struct Cycle {
  double push = 0;
  double update = 0;
  double pull = 0;
};

class TimedServer {
 public:
  TimedServer(const ServerSetup& setup, const comm::SyncedStage& stage)
      : server_(measured_layout(setup, stage), ps::values_of({stage}), ps::statistics_of({stage}), timed(setup)),
        ledger_({.samples = 1}),
        network_(server_, ledger_,
                 {.compression = setup.compression,
                  .last_version = kWarmUpSteps + kTimedSteps + 1,
                  .connect_timeout = kServerTimeout,
                  .wants_state =
                      [this](const ps::ServerProgress&, const ps::ServerProgress&) {
                        end_ = now_ns();
                        return false;
                      }}),
        thread_([this](const std::stop_token& stop) { serve(stop); }) {}

  [[nodiscard]] int port() const { return network_.port(); }
  [[nodiscard]] Nanoseconds begin_of_update() const { return begin_; }
  [[nodiscard]] Nanoseconds end_of_update() const { return end_; }
  void stop() { thread_.request_stop(); }
  void join() {
    thread_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  static constexpr Nanoseconds kTurn = 50'000'000;

  ps::ServerOptions timed(const ServerSetup& setup) {
    ps::ServerOptions options = options_of_server(setup, ps::preset_policy("asp", /*workers=*/1));
    options.lr = [this, rate = options.lr](const ps::ServerProgress& progress) {
      begin_ = now_ns();  // the whole push has arrived
      return rate(progress);
    };
    return options;
  }
  void serve(const std::stop_token& stop) {
    try {
      device::use_cpu_threads(1);
      while (!network_.is_over() && !stop.stop_requested()) (void)network_.next(kTurn);
      network_.end({});
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  std::atomic<Nanoseconds> begin_ = 0, end_ = 0;
  ps::Server server_;
  data::Ledger ledger_;
  ps::NetworkServer network_;
  std::exception_ptr failure_;  // owned by the thread until it has ended
  std::jthread thread_;         // last member, because it uses the others
};

class IdleWorker {
 public:
  IdleWorker(const ServerSetup& setup, const comm::SyncedStage& stage, int port)
      : link_(std::make_shared<ps::NetworkLink>(ps::LinkOptions{.host = "127.0.0.1",
                                                                .port = port,
                                                                .worker = kWorker,
                                                                .compression = setup.compression,
                                                                .connect_timeout = kServerTimeout,
                                                                .peer_timeout = kServerTimeout})),
        sync_({stage}, setup.bucket_bytes, link_) {}

  void pull(std::int64_t step) {
    check(link_->next_lease().has_value(), "a measured server that is still running");
    (void)link_->wait_for_weights();
    (void)sync_.begin_step({.step = step});
  }
  void push() {
    sync_.on_backward_done(ReplicaId{0}, StageId{0});
    (void)sync_.finish_step({.samples = 1, .targets = 1});
  }
  void leave() { link_->leave(); }

 private:
  std::shared_ptr<ps::NetworkLink> link_;
  ps::WorkerSync sync_;
};

Cycle time_cycles(const ServerSetup& setup, std::uint64_t bytes) {
  const comm::SyncedStage stage = one_parameter(setup, bytes);
  TimedServer server(setup, stage);
  std::vector<double> pushes, updates, pulls;
  ColdCaches caches(at::kCPU);  // the server sleeps meanwhile, as in a step
  {
    IdleWorker worker(setup, stage, server.port());
    worker.pull(0);
    for (int step = 1; step <= kWarmUpSteps + kTimedSteps; ++step) {
      caches.evict();
      const Nanoseconds pushed = now_ns();
      worker.push();
      worker.pull(step);
      const Nanoseconds pulled = now_ns();
      if (step <= kWarmUpSteps) continue;
      pushes.push_back(to_s(server.begin_of_update() - pushed));
      updates.push_back(to_s(server.end_of_update() - server.begin_of_update()));
      pulls.push_back(to_s(pulled - server.end_of_update()));
    }
    server.stop();  // first, because a worker leaving a running server is a failure
    worker.leave();
  }
  server.join();
  return {median(pushes), median(updates), median(pulls)};
}

double time_server_update(const ServerSetup& setup, const comm::SyncedStage& stage, int workers) {
  const ps::Layout layout = measured_layout(setup, stage);
  ps::Server server(layout, ps::values_of({stage}), ps::statistics_of({stage}),
                    options_of_server(setup, ps::preset_policy("bsp", workers)));
  std::vector<int> incarnations;
  for (int w = 0; w < workers; ++w) incarnations.push_back(server.join(ps::WorkerId{w}, /*now=*/0));
  std::vector<double> seconds;
  for (int update = 1; update <= kWarmUpSteps + kTimedSteps; ++update) {
    for (int w = 0; w < workers; ++w) {
      const std::int64_t version = server.begin(ps::WorkerId{w});
      const ps::PushRecord record{.worker = ps::WorkerId{w},
                                  .incarnation = incarnations[static_cast<std::size_t>(w)],
                                  .sequence = update,
                                  .base_version = version,
                                  .examples = 1,
                                  .targets = 1};
      ps::Tensors pushed{.shards = ps::to_shards(layout, {stage.gradients.front().to(at::kCPU, false, /*copy=*/true)}),
                         .statistics = at::empty({0}, layout.dtype)};
      check(server.push(record, std::move(pushed), /*now=*/0) == ps::PushAnswer::kCommitted, "a committed push");
    }
    const Nanoseconds begin = now_ns();
    (void)server.advance(/*now=*/0);
    if (update > kWarmUpSteps) seconds.push_back(to_s(now_ns() - begin));
  }
  return median(seconds);
}

ServerCost measure_sizes(const ServerSetup& setup, std::uint64_t largest_bytes) {
  constexpr std::uint64_t kLargest = std::uint64_t{256} << 20;
  std::vector<TimeAtSize> push, pull, update, merge;
  for (const std::uint64_t bytes : sizes_up_to(std::min(largest_bytes, kLargest))) {
    const Cycle cycle = time_cycles(setup, bytes);
    const comm::SyncedStage stage = one_parameter(setup, bytes);
    const double one = time_server_update(setup, stage, 1), two = time_server_update(setup, stage, 2);
    const auto size = static_cast<double>(stage.values.front().nbytes());
    push.push_back({size, cycle.push});
    pull.push_back({size, cycle.pull});
    update.push_back({size, cycle.update});
    merge.push_back({size, std::max(0.0, two - one)});
  }
  return {.push = profiler::fit_link(push),
          .pull = profiler::fit_link(pull),
          .update = profiler::fit_affine(update),
          .merge = profiler::fit_affine(merge)};
}

}  // namespace

ServerCost measure_server(const ServerSetup& setup, std::uint64_t largest_bytes) {
  ServerCost cost;
  const std::exception_ptr failure =
      run_as_worker(setup.cpu_threads, [&] { cost = measure_sizes(setup, largest_bytes); });
  if (failure) throw pipeline::describe_failure(failure, "measuring the parameter server");
  return cost;
}

}  // namespace sluice::measure
