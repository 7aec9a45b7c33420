#include "pipeline/executor.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "pipeline/failure.h"
#include "pipeline/pass.h"

namespace sluice::pipeline {
namespace {

std::vector<Slot> make_slots(const std::vector<std::vector<device::Device>>& devices, int cpu_threads) {
  std::vector<Slot> slots;
  for (int replica = 0; replica < static_cast<int>(devices.size()); ++replica) {
    for (int device = 0; device < static_cast<int>(devices[replica].size()); ++device) {
      slots.push_back({ReplicaId{replica}, DeviceId{device}, devices[replica][device], cpu_threads});
    }
  }
  return slots;
}

std::shared_ptr<Grid> make_grid(StageGrid stages, PrefixGrid prefixes, const DeviceThreads& pool,
                                const std::vector<int>& owners, std::shared_ptr<Recorder> recorder) {
  auto grid = std::make_shared<Grid>();
  const std::vector<Slot>& slots = pool.slots();
  const std::size_t devices = slots.size() / stages.size();
  grid->stages = std::move(stages);
  grid->prefixes = std::move(prefixes);
  check(grid->prefixes.empty() || grid->prefixes.size() == slots.size(), "frozen layers on every slot or on none");
  grid->recorder = std::move(recorder);
  grid->recorder->remove_tracks();
  grid->owners = owners;
  grid->stages_of.resize(devices);
  for (int stage = 0; stage < static_cast<int>(owners.size()); ++stage) {
    grid->stages_of.at(owners[stage]).push_back(StageId{stage});
  }
  for (const auto& of_replica : grid->stages) check(of_replica.size() == owners.size(), "every stage has an owner");
  for (const auto& of_device : grid->stages_of) check(!of_device.empty(), "every device has a stage");
  for (std::size_t i = 0; i < slots.size(); ++i) {
    grid->tracks.push_back(&grid->recorder->add_track(slots[i].replica, slots[i].device,
                                                      grid->stages_of[index(slots[i].device)],
                                                      pool.streams()[i].compute().name()));
  }
  return grid;
}

}  // namespace

Executor::Executor(StageGrid grid, const std::vector<std::vector<device::Device>>& devices,
                   const std::vector<int>& owners, ExecutorOptions options, PrefixGrid prefixes)
    : limits_(options.limits ? std::move(options.limits) : std::make_shared<PassLimits>(options.step_timeout)),
      pool_(options.threads ? std::move(options.threads) : std::make_shared<DeviceThreads>()) {
  pool_->assign(make_slots(devices, options.cpu_threads));
  auto recorder = options.recorder ? std::move(options.recorder) : std::make_shared<Recorder>(options.record_spans);
  grid_ = make_grid(std::move(grid), std::move(prefixes), *pool_, owners, std::move(recorder));
}

Executor::~Executor() = default;

std::vector<std::shared_ptr<FrozenPrefix>> Executor::prefixes() const {
  std::vector<std::shared_ptr<FrozenPrefix>> once;
  for (const auto& prefix : grid_->prefixes)
    if (std::ranges::find(once, prefix) == once.end()) once.push_back(prefix);
  return once;
}

void Executor::wait_for_caller() const {
  for (const Slot& slot : pool_->slots()) device::Stream::current(slot.hardware).synchronize();
}

std::shared_ptr<PassGraphs> Executor::make_graphs(const device::GraphFactory& make) const {
  auto graphs = std::make_shared<PassGraphs>();
  std::vector<StreamName> names;  // StreamName{} for a CPU device
  for (const SlotStreams& streams : pool_->streams()) {
    const device::Stream& compute = streams.compute();
    const StreamName name = compute.name();
    // On a shared stream, each recording would also contain the work of the other slot.
    if (name != StreamName{} && std::ranges::find(names, name) != names.end())
      throw ConfigError(
          concat("two stages or replicas share a stream of ", device::to_string(compute.device()),
                 ", so their work cannot be recorded; set device.cuda_graphs = false or run fewer stages per GPU"));
    names.push_back(name);
    graphs->push_back(std::make_unique<ActionGraphs>(make(compute), compute.device()));
  }
  return graphs;
}

PassResult Executor::run(PassRequest request) {
  TimeLimit& limit = request.context.training ? limits_->training : limits_->forward;
  const auto pass = std::make_shared<Pass>(grid_, std::move(request));
  const auto job = [pass, slots = pool_->slots(), streams = pool_->streams()](int slot) {
    pass->work(slots[slot], streams[slot]);
  };
  limit.add(pool_->run(job, {.timeout = limit.current(),
                             .on_failure = [pass] { pass->stop(); },
                             .is_excused = [pass] { return pass->report().waits_for_processes(); },
                             .describe = [pass](int slot) { return pass->report().describe(slot); },
                             .conclude =
                                 [pass] {
                                   const PassReport report = pass->report();
                                   log_lines(report.draw_unfinished(), LogLevel::kWarning);
                                   return report.describe_waits();
                                 }}));
  return pass->take_result();
}

void Executor::for_each_stage(Phase phase, const std::function<void(ReplicaId, StageId, Stage&)>& job) {
  const auto on_slot = [grid = grid_, slots = pool_->slots(), streams = pool_->streams(), phase, job](int slot) {
    const Slot& where = slots[slot];
    StageId current = kNoStage;
    try {
      const device::Stream& compute = streams[slot].compute();
      StreamSpans spans = grid->open_spans(slot, compute);
      for (const StageId stage : grid->stages_of[index(where.device)]) {
        current = stage;
        const StreamSpanScope span(spans, phase, stage);
        job(where.replica, stage, grid->stage(where.replica, stage));
      }
      compute.synchronize();
      spans.settle();
    } catch (...) {
      throw describe_failure(std::current_exception(),
                             concat("replica ", index(where.replica), " stage ", index(current)));
    }
  };
  const auto describe = [slots = pool_->slots()](int slot) {
    return concat("replica ", index(slots[slot].replica), " device ", index(slots[slot].device));
  };
  pool_->run(on_slot, {.timeout = training_limit(), .describe = describe});
}

}  // namespace sluice::pipeline
