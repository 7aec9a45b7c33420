#include "train/trace/step_trace.h"

#include <unistd.h>
#include <chrono>
#include <exception>
#include <map>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/host.h"
#include "core/log.h"
#include "core/text.h"
#include "device/memory.h"
#include "storage/files.h"
#include "storage/run_dir.h"
#include "train/trace/sum_waits.h"

namespace sluice::train {
namespace {

std::map<std::pair<ReplicaId, DeviceId>, std::string> names_of(const std::vector<device::Device>& devices,
                                                               const Plan& plan) {
  std::map<std::pair<ReplicaId, DeviceId>, std::string> names;
  for (int i = 0; i < static_cast<int>(devices.size()); ++i)
    names[{ReplicaId{i / plan.devices()}, DeviceId{i % plan.devices()}}] = device::to_string(devices[i]);
  return names;
}

std::map<std::string, double> counters_of(const StepSpans& spans, const StepStats& stats,
                                          const std::vector<device::Device>& devices,
                                          const profiler::NetworkRates* network) {
  const double seconds = to_s(spans.end - spans.begin);
  std::map<std::string, double> counters;
  if (seconds > 0) counters["samples/s of the run"] = static_cast<double>(stats.samples) / seconds;
  if (network != nullptr) counters["network MB/s"] = network->total * 1e-6;
  for (const device::Device& device : devices) {
    if (device.kind == device::DeviceKind::kCpu && !device::memory_is_counted()) continue;
    counters[concat("memory MB of ", device::to_string(device))] =
        static_cast<double>(device::memory_use(device).current) * 1e-6;
  }
  return counters;
}

std::string backend_of(const Setup& setup) {
  if (setup.process.processes == 1) return "";
  if (setup.config.replicas.backend != "auto") return setup.config.replicas.backend;
  return setup.devices.front().kind == device::DeviceKind::kCuda ? "nccl" : "gloo";
}

Nanoseconds since_1970() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

TracePart part_of_process(const Setup& setup) { return {setup.process.rank, setup.process.processes}; }

// Servers that keep only shards write no trace, but they have a number that no other part may use.
TracePart part_of_server(const Setup& setup) {
  return {0, static_cast<int>(setup.config.ps.workers + setup.config.ps.servers), "parameter server",
          /*has_own_clock=*/true};
}

TracePart part_of_worker(const Setup& setup, int worker) {
  return {worker + 1, part_of_server(setup).processes, concat("worker ", worker), /*has_own_clock=*/true};
}

TraceOptions traces_of_run(const StepRange& steps, TracePart part, const std::filesystem::path& run_dir) {
  return {.steps = steps,
          .part = std::move(part),
          .file = [run_dir](int rank) { return run_dir / storage::RunDir::trace_name(rank); },
          .run_dir = run_dir};
}

StepTrace::StepTrace(const Setup& setup, const comm::Communicator* others, TraceOptions options)
    : setup_(setup), others_(others), options_(std::move(options)), is_done_(options_.steps.is_empty()) {}

void StepTrace::add(const StepSpans& spans, const StepStats& stats, const Plan& plan) {
  if (is_done_ || spans.step < options_.steps.first) return;
  // The run begins after the range, or a worker's version jumps past it.
  if (spans.step > options_.steps.last) return finish();
  const profiler::NetworkRates& network = network_.rates();
  const std::vector<device::Device> devices = devices_for(setup_, plan.devices() * plan.replicas).devices;
  {
    const std::scoped_lock lock(mutex_);
    steps_.push_back(
        {spans, names_of(devices, plan), counters_of(spans, stats, devices, network_.is_known() ? &network : nullptr)});
  }
  if (others_ != nullptr && steps_.size() == 1) clock_ = comm::measure_clock_offset(*others_);
  if (spans.step == options_.steps.last) write();
}

void StepTrace::outside_of_steps(const std::vector<Span>& spans) {
  if (is_done_ || steps_.empty()) return;
  const std::scoped_lock lock(mutex_);
  steps_.back().outside.insert(steps_.back().outside.end(), spans.begin(), spans.end());
}

std::string StepTrace::none_was_made() const {
  return concat("--trace: the run made no step from ", options_.steps.first, " to ", options_.steps.last,
                ", so there is no trace");
}

void StepTrace::warn_of_missing() const {
  const std::int64_t first = steps_.front().spans.step, last = steps_.back().spans.step;
  if (setup_.process.rank != 0 || (first <= options_.steps.first && last >= options_.steps.last)) return;
  log_warning("--trace: the run made only steps ", first, " to ", last, " of ", options_.steps.first, " to ",
              options_.steps.last);
}

void StepTrace::finish() {
  if (is_done_) return;
  if (!steps_.empty()) return write();
  const std::scoped_lock lock(mutex_);
  is_done_ = true;
  if (setup_.process.rank == 0) log_warning(none_was_made());
}

profiler::TraceProcess StepTrace::own_process() const {
  profiler::TraceProcess process{.rank = options_.part.rank,
                                 .processes = options_.part.processes,
                                 .host = host_name(),
                                 .pid = static_cast<int>(getpid()),
                                 .part = options_.part.name,
                                 .backend = backend_of(setup_),
                                 .base = steps_.front().spans.begin};
  process.base_epoch = since_1970() - (now_ns() - process.base);
  if (options_.part.has_own_clock) process.clock = std::nullopt;
  return process;
}

void StepTrace::agree_with_others(profiler::TraceProcess& process) {
  const comm::ClockOffset clock = comm::covering(*clock_, comm::measure_clock_offset(*others_));
  process.clock = {clock.offset, clock.error};
  const at::Tensor of_rank_0 = at::tensor({process.base, process.base_epoch}, at::kLong);
  others_->broadcast(of_rank_0, /*root=*/0);
  process.base = of_rank_0[0].item<std::int64_t>();
  process.base_epoch = of_rank_0[1].item<std::int64_t>();
  const auto times = when_all_were_there(*others_, clock.offset, steps_);
  process.knows_waits = times.has_value();
  if (!times) return;
  const std::scoped_lock lock(mutex_);
  auto next = times->begin();
  for (profiler::TracedStep& step : steps_) {
    for (BucketSpan& bucket : step.spans.buckets) bucket.all_there = *next++;
  }
}

std::string StepTrace::text_of(const profiler::TraceProcess& process) const {
  if (const std::uint64_t dropped = profiler::spans_dropped(steps_); dropped > 0)
    log_warning("the trace of ", process.part.empty() ? concat("rank ", process.rank) : process.part, " lacks ",
                counted(dropped, "span"), " that exceeded the buffer of a step; use fewer micro-batches ",
                "(pipeline.chunks)");
  return packed_text(profiler::trace_text(process, steps_), options_.file(0));
}

void StepTrace::remove_stale(std::size_t processes) const {
  if (options_.run_dir.empty()) return;
  remove_traces_beyond(static_cast<int>(processes), storage::RunDir::traces(options_.run_dir));
}

void StepTrace::write() {
  warn_of_missing();
  profiler::TraceProcess process = own_process();
  if (others_ != nullptr) agree_with_others(process);
  const std::vector<std::string> texts = gather_trace(others_, text_of(process));
  const std::scoped_lock lock(mutex_);
  if (is_done_.exchange(true)) return;
  const auto traced = static_cast<std::int64_t>(steps_.size());
  steps_.clear();
  if (setup_.process.rank != 0) return;
  if (write_gathered(texts, options_.file, concat("trace of ", counted(traced, "step")))) remove_stale(texts.size());
}

void StepTrace::rescue() noexcept {
  const std::scoped_lock lock(mutex_);
  if (is_done_.exchange(true) || setup_.process.rank != 0) return;
  try {
    if (steps_.empty()) return log_warning(none_was_made());
    profiler::TraceProcess process = own_process();
    process.knows_waits = others_ == nullptr;
    storage::write_text_atomically(options_.file(0), text_of(process));
    remove_stale(/*processes=*/1);
    const int missing = setup_.process.processes - 1;
    log_warning("the run ended before its trace was complete: ", counted(steps_.size(), "step"), " written to ",
                options_.file(0).string(),
                missing > 0 ? concat("; the traces of ", counted(missing, "other process"), " are lost") : "");
  } catch (const std::exception& error) {
    log_warning("the trace is lost: ", error.what());
  }
}

void run_traced(StepTrace& trace, const std::function<void()>& steps) {
  try {
    steps();
  } catch (...) {
    trace.rescue();
    throw;
  }
}

void run_traced(Peers& peers, StepTrace& trace, const std::function<void()>& steps,
                const Peers::BeforeEnd& before_end) {
  peers.before_end([&](const comm::LostProcess* lost) {
    if (before_end) before_end(lost);
    trace.rescue();
  });
  try {
    steps();
  } catch (...) {
    {
      const auto held = peers.hold();
      trace.rescue();
    }
    peers.before_end({});
    throw;
  }
  peers.before_end({});
}

}  // namespace sluice::train
