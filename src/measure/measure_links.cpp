#include "measure/measure_links.h"

#include <exception>
#include <functional>
#include <thread>

#include <ATen/ATen.h>

#include "core/clock.h"
#include "ddp/reducer.h"
#include "device/stream.h"
#include "measure/time_sizes.h"
#include "pipeline/failure.h"
#include "pipeline/mailbox.h"
#include "profiler/affine_fit.h"

namespace sluice::measure {
namespace {

// Two stage threads that pass one activation back and forth.
class PingPong {
 public:
  PingPong(device::Device here, device::Device there, int cpu_threads, const std::function<Nanoseconds()>& clock)
      : here_(here), there_(there), cpu_threads_(cpu_threads), clock_(clock) {}

  [[nodiscard]] std::vector<TimeAtSize> measure(const std::vector<std::uint64_t>& sizes) {
    std::exception_ptr partner_failure;
    std::jthread partner([&] { partner_failure = run_as_worker(cpu_threads_, [this] { send_back(); }); });
    std::vector<TimeAtSize> points;
    const std::exception_ptr failure = run_as_worker(cpu_threads_, [&] {
      const auto stream = device::Stream::make(here_);
      const device::StreamGuard guard(stream);
      const Way back(there_, here_);
      points = time_sizes(sizes, [&](std::uint64_t bytes) { return half_round_trip(bytes, stream, back); });
    });
    forth_.close();
    partner.join();
    for (const auto& reason : {partner_failure, failure}) {
      if (reason) throw pipeline::describe_failure(reason, "measuring the copies between stages");
    }
    return points;
  }

 private:
  struct Message {
    at::Tensor tensor;
    device::Event ready;
  };
  struct Way {
    device::Stream from, into;
    Way(device::Device source, device::Device target)
        : from(device::Stream::make_beside(source)), into(device::Stream::make_beside(target)) {}
    [[nodiscard]] device::CopyQueues queues() const { return {.from = from, .into = into}; }
  };
  static constexpr MicroBatchId kOnlyMessage{0};

  void send_back() {
    const auto stream = device::Stream::make(there_);
    const device::StreamGuard guard(stream);
    const Way forth(here_, there_);
    try {
      while (const auto message = forth_.take(kOnlyMessage)) {
        const at::Tensor tensor = device::transfer(message->tensor, message->ready, stream, forth.queues());
        back_.put(kOnlyMessage, {tensor, stream.record()});
      }
    } catch (...) {
      back_.close();
      throw;
    }
  }

  double half_round_trip(std::uint64_t bytes, const device::Stream& stream, const Way& way_back) {
    const at::Tensor tensor =
        at::zeros({static_cast<std::int64_t>(bytes)}, at::TensorOptions(at::kByte).device(device::torch_device(here_)));
    stream.synchronize();
    const Nanoseconds begin = clock_();
    forth_.put(kOnlyMessage, {tensor, stream.record()});
    const auto message = back_.take(kOnlyMessage);
    if (!message) return 0;  // the partner has failed and reports the reason
    const at::Tensor returned = device::transfer(message->tensor, message->ready, stream, way_back.queues());
    stream.synchronize();
    return to_s(clock_() - begin) / 2;
  }

  device::Device here_;
  device::Device there_;
  int cpu_threads_;
  const std::function<Nanoseconds()>& clock_;
  pipeline::Mailbox<Message> forth_;
  pipeline::Mailbox<Message> back_;
};

comm::SyncedStage one_bucket(const ReplicaGroup& group, std::uint64_t bytes) {
  const auto elements = static_cast<std::int64_t>(bytes / c10::elementSize(group.dtype));
  comm::SyncedStage gradients{.stage = StageId{0}, .extents = {{ParamId{0}, 0, elements}}};
  for (const device::Device device : group.devices) {
    gradients.devices.push_back(device);
    gradients.gradients.push_back(
        at::zeros({elements}, at::TensorOptions(group.dtype).device(device::torch_device(device))));
  }
  return gradients;
}

double time_sum(const ReplicaGroup& group, const std::shared_ptr<comm::Communicator>& communicator,
                std::uint64_t bytes) {
  ddp::Network network;
  if (communicator) network.lines.push_back({communicator, {0}});
  ddp::Reducer reducer({one_bucket(group, bytes)}, {.bucket_bytes = bytes}, std::move(network));
  if (communicator) communicator->barrier();
  const Nanoseconds begin = now_ns();
  (void)reducer.begin_step({.is_trial = true});
  for (int replica = 0; replica < static_cast<int>(group.devices.size()); ++replica)
    reducer.on_backward_done(ReplicaId{replica}, StageId{0});
  (void)reducer.finish_step({});
  return to_s(now_ns() - begin);
}

}  // namespace

std::vector<profiler::StageLink> measure_stage_links(const std::vector<device::Device>& devices,
                                                     const std::vector<int>& owners, int cpu_threads,
                                                     const std::function<Nanoseconds()>& clock) {
  constexpr std::uint64_t kLargestBytes = std::uint64_t{16} << 20;
  std::vector<profiler::StageLink> links;
  for (int stage = 0; stage + 1 < static_cast<int>(owners.size()); ++stage) {
    if (owners[stage] == owners[stage + 1]) continue;
    const device::Device from = devices[owners[stage]], to = devices[owners[stage + 1]];
    LinkCost cost = profiler::fit_link(PingPong(from, to, cpu_threads, clock).measure(sizes_up_to(kLargestBytes)));
    if (device::same_memory(from, to)) cost.bytes_per_s.reset();
    links.push_back({stage, stage + 1, device::to_string(from), device::to_string(to), cost});
  }
  return links;
}

std::optional<profiler::AllReduceLink> measure_all_reduce(const ReplicaGroup& group, std::uint64_t largest_bytes) {
  const int processes = group.processes == nullptr ? 1 : group.processes->size();
  const int local = static_cast<int>(group.devices.size());
  if (processes * local == 1) return std::nullopt;
  std::shared_ptr<comm::Communicator> communicator;
  if (group.processes != nullptr) {
    communicator =
        group.processes->make_communicator("the measured all-reduce", group.devices.front(), group.collectives);
  }
  std::vector<TimeAtSize> points;
  const std::exception_ptr failure = run_as_worker(group.cpu_threads, [&] {
    points = time_sizes(sizes_up_to(largest_bytes),
                        [&](std::uint64_t bytes) { return time_sum(group, communicator, bytes); });
  });
  if (failure) throw pipeline::describe_failure(failure, "measuring the all-reduce");
  return profiler::AllReduceLink{processes, local, profiler::fit_link(points)};
}

}  // namespace sluice::measure
