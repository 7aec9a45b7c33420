#include "train/serve/worker.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include <ATen/ATen.h>

#include "comm/socket_address.h"
#include "core/concat.h"
#include "core/host.h"
#include "core/log.h"
#include "core/text.h"
#include "data/sample_reader.h"
#include "device/cpu_threads.h"
#include "device/memory.h"
#include "pipeline/failure.h"
#include "profiler/breakdown.h"
#include "ps/net/network_link.h"
#include "ps/policy/stragglers.h"
#include "ps/worker_sync.h"
#include "report/worker_writer.h"
#include "storage/run_dir.h"
#include "train/plan/choose_chunks.h"
#include "train/plan/composition.h"
#include "train/plan/memory_advice.h"
#include "train/plan/plan_changes.h"
#include "train/plan/plan_description.h"
#include "train/plan/run_facts.h"
#include "train/serve/served_workers.h"
#include "train/serve/server_run.h"
#include "train/serve/unsent.h"
#include "train/setup/machine_fit.h"
#include "train/setup/server_settings.h"
#include "train/setup/stop_signal.h"
#include "train/setup/worker_share.h"

namespace sluice::train {
namespace {

// Link to the server at this worker's pace. A step's clock starts when its weights arrive. Then comes the stall of
// ps.induce. After ps.time_limit_s no further slice begins.
class PacedLink final : public ps::ServerLink {
 public:
  PacedLink(std::shared_ptr<ps::NetworkLink> link, const config::Config& config, ps::WorkerId worker)
      : link_(std::move(link)),
        stragglers_(straggler_options(config)),
        worker_(worker),
        limit_(from_s(config.ps.time_limit_s)) {}

  [[nodiscard]] const ps::Layout& layout() const override { return link_->layout(); }
  [[nodiscard]] std::int64_t pull(ps::Tensors& into) override {
    const std::int64_t version = link_->pull(into);
    begin_ = now_ns();
    times = {.stall_s = stragglers_.stall_s(worker_, steps_++), .idle_s = to_s(begin_ - last_push_)};
    stall(begin_ + from_s(times.stall_s));
    return version;
  }
  [[nodiscard]] bool takes_spans() const override { return link_->takes_spans(); }
  void push_ahead(std::size_t shard, std::vector<ps::ShardSpan> spans, const at::Tensor& elements) override {
    link_->push_ahead(shard, std::move(spans), elements);
  }
  void push(ps::Push push) override {
    last_push_ = now_ns();
    times.compute_s = to_s(last_push_ - begin_);
    examples = push.record.examples;
    push.times = times;
    link_->push(std::move(push));
  }

  // Threads: any. The micro-batches of a replica come in order.
  [[nodiscard]] bool admits(MicroBatchId slice) const {
    return limit_ == 0 || index(slice) == 0 || now_ns() - begin_ < limit_;
  }

  ps::PushTimes times;
  std::int64_t examples = 0;

 private:
  static void stall(Nanoseconds until) {
    constexpr Nanoseconds kLongestSleep = 50'000'000;
    for (Nanoseconds now = now_ns(); now < until; now = now_ns()) {
      if (StopSignal::requested()) throw InterruptedError("stopped by ", StopSignal::name());
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(until - now, kLongestSleep)));
    }
  }

  std::shared_ptr<ps::NetworkLink> link_;
  ps::Stragglers stragglers_;
  ps::WorkerId worker_;
  Nanoseconds limit_;
  std::int64_t steps_ = 0;
  Nanoseconds begin_ = 0;
  Nanoseconds last_push_ = now_ns();
};

ps::LinkOptions link_options(const Setup& setup, const ServerRole& role, const Launch& launch, std::string& constants) {
  return {.host = role.host,
          .port = role.port,
          .others = role.others,
          .keys = role.keys,
          .worker = ps::WorkerId{role.worker},
          .where = process_name(),
          .batch = share_of(setup, role.worker).samples,
          .slack = ledger_options(setup).slack,
          .agreement = served_agreement(setup, launch.version),
          .compression = compression_options(setup.config.ps),
          .connect_timeout = from_s(setup.config.replicas.connect_timeout_s),
          .peer_timeout = from_s(setup.config.replicas.hang_timeout_s),
          .is_stopped = StopSignal::requested,
          .take_constants = [&constants](const std::string& text) { constants = text; }};
}

// Identifies this worker in its own records. The server's records use the same "where" and "session".
nlohmann::ordered_json identity_of(const Setup& setup, const ServerRole& role, const std::string& process_id) {
  const WorkerShare share = share_of(setup, role.worker);
  return {{"worker", role.worker},   {"host", host_name()},   {"pid", ::getpid()},
          {"where", process_name()}, {"session", process_id}, {"server", concat(role.host, ":", role.port)},
          {"unix_s", unix_s()},      {"batch", share.batch},  {"samples_of_push", share.samples}};
}

nlohmann::ordered_json plan_of_worker(const nlohmann::ordered_json& description, const report::RunFacts& facts) {
  nlohmann::ordered_json plan;
  for (const char* key : {"model", "data", "parameters", "stages", "virtual", "replicas", "schedule", "chunks",
                          "partition", "cpu_threads"})
    plan[key] = description.at(key);
  for (const device::Device& device : facts.devices) plan["devices"].push_back(device::to_string(device));
  return plan;
}

class Stopwatch {
 public:
  explicit Stopwatch(Nanoseconds& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += now_ns() - begin_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  Nanoseconds& sum_;
  Nanoseconds begin_ = now_ns();
};

class Worker {
 public:
  Worker(const Setup& setup, const ServerRole& role, std::shared_ptr<ps::NetworkLink> link,
         report::WorkerWriter* records, StepTrace& trace)
      : setup_(setup),
        trace_(trace),
        records_(records),
        number_(role.worker),
        share_(share_of(setup, role.worker)),
        link_(std::move(link)),
        paced_(std::make_shared<PacedLink>(link_, setup.config, ps::WorkerId{role.worker})),
        reader_(*setup.train_set, train_loader_options(setup).reading()),
        plans_(plan_run(setup, nullptr)),
        engine_(plans_.now, engine_options(setup, nullptr, nullptr, sync_factory())) {
    check_feasible(engine_, plans_.changes, 0);
    if (plans_.tries_chunks) decide_chunks(setup_, engine_, {});
    const PlanDescription description = describe_plan(setup_, engine_.composition(), /*chunks_are_open=*/false);
    log_table(description.text);
    if (records_ == nullptr) return;
    const report::RunFacts facts = facts_of(setup_, engine_.composition());
    for (const device::Device& device : facts.devices) device::reset_peak_memory(device);  // excludes the trial steps
    records_->begin(facts, plan_of_worker(description.json, facts));
  }

  void run() {
    engine_.recorder().clear();
    begin_ = now_ns();
    while (const auto lease = next_lease()) {
      try {
        run_round(*lease);
      } catch (const ps::StepIsVoid&) {  // the step's lease belongs to an earlier incarnation, or the run is over
        engine_.recorder().clear();
        begin_ = now_ns();
      }
      waited_ = 0;
    }
  }

  [[nodiscard]] std::int64_t pushes() const { return pushes_; }
  [[nodiscard]] nlohmann::ordered_json summary() const {
    return {{"worker", number_}, {"outcome", "done"}, {"pushes", pushes_}, {"examples", examples_}};
  }

 private:
  engine::SyncFactory sync_factory() {
    return [this](engine::SyncRequest request) {
      const ps::WorkerSyncOptions options{
          .payload = policy_of_server(setup_.config.ps).payload,
          .admission = [this](ReplicaId, MicroBatchId slice) { return paced_->admits(slice); }};
      sync_ = std::make_shared<ps::WorkerSync>(std::move(request.stages), request.bucket_bytes, paced_, options);
      return sync_;
    };
  }

  std::optional<data::Lease> next_lease() {
    const Stopwatch waiting(waited_);
    return link_->next_lease();
  }

  std::int64_t wait_for_weights() {
    const Stopwatch waiting(waited_);
    return link_->wait_for_weights();
  }

  void run_round(const data::Lease& lease) {
    const std::vector<data::Lease> steps = steps_of(lease, share_);
    pipeline::MicroBatch batch = read(steps.front());
    const double last_send_s = link_->last_send_s();
    report::WorkerPush push{.version = wait_for_weights(), .epoch = lease.epoch};
    sync_->begin_round(round_of(lease, share_));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (i > 0) {
        link_->check_step();
        batch = read(steps[i]);
      }
      // Dropout depends on the step number, so it follows the server's version, which a resumed run repeats.
      const std::int64_t number = push.version * share_.steps() + static_cast<std::int64_t>(i);
      const StepStats stats = engine_.step().run({batch}, number, lr_.at(push.version), {.counts_scores = true});
      const Nanoseconds end = now_ns();
      const StepSpans spans = engine_.recorder().collect(number, std::exchange(begin_, end), end);
      trace_.add(spans, stats, engine_.plan());
      push.add(stats, profiler::break_down(spans));
    }
    ++pushes_;
    examples_ += paced_->examples;
    push.waited = waited_;
    push.stalled = from_s(paced_->times.stall_s);
    if (workers_update(setup_.config)) push.lr = lr_.at(push.version);
    if (records_ != nullptr) records_->push(push);
    if (pushes_ % setup_.config.log.every == 0) log_progress(last_send_s);
  }

  pipeline::MicroBatch read(const data::Lease& lease) {
    const SpanScope span(engine_.recorder().process(), Phase::kLoadWait);
    return read_lease(reader_, lease, *setup_.task);
  }

  void log_progress(double last_send_s) const {
    const ps::PushTimes& times = paced_->times;
    std::string line = concat("Sending [", paced_->examples, "] examples, compute_time [", fixed(times.compute_s, 6),
                              "], last_idle [", fixed(times.idle_s, 6), "], last_send [", fixed(last_send_s, 6), "]");
    if (setup_.config.ps.induce != "none") line += concat(", sleep_time [", fixed(times.stall_s, 6), "]");
    log_info(line);
  }

  const Setup& setup_;
  StepTrace& trace_;
  report::WorkerWriter* records_;
  int number_;
  WorkerShare share_;
  std::shared_ptr<ps::NetworkLink> link_;
  std::shared_ptr<PacedLink> paced_;
  std::shared_ptr<ps::WorkerSync> sync_;
  data::SampleReader reader_;
  // Rate of local steps, by the server's updates; unused if workers push gradients.
  optim::LrSchedule lr_ = lr_schedule(setup_);
  RunPlans plans_;
  engine::Engine engine_;
  std::int64_t pushes_ = 0;
  std::int64_t examples_ = 0;
  Nanoseconds begin_ = 0;  // end of the previous step
  Nanoseconds waited_ = 0;
};

// Names the batch size, the first setting to check if memory runs out.
Error with_batch(const Error& error, const WorkerShare& share) {
  if (error.exit_code() != ExitCode::kOutOfMemory) return error;
  return error.with_context(concat("a step of ", counted(share.batch, "sample")));
}

// The worker's main part: its failures are sent to the server and recorded.
nlohmann::ordered_json work(const Setup& setup, const ServerRole& role, const std::shared_ptr<ps::NetworkLink>& link,
                            const WorkerFiles& files) {
  const auto& [run_dir, traced] = files;
  std::unique_ptr<report::WorkerWriter> records;
  const auto unsent_owner = [&] { return UnsentOwner{run_dir, role.worker, link->run()}; };
  bool has_taken = false;  // until then an existing file is another process's
  const auto save = [&] {
    if (has_taken) save_unsent(unsent_owner(), link->residuals());
  };
  const auto end = [&](const char* outcome) {
    link->leave();
    if (records) records->end(outcome);
  };
  const auto report_failure = [&](const Error& error) {
    Error reported = with_batch(error, share_of(setup, role.worker));
    link->fail(reported);
    if (records) records->fail(reported);
    return reported;
  };
  try {
    if (!run_dir.empty())
      records =
          std::make_unique<report::WorkerWriter>(run_dir, role.worker, identity_of(setup, role, link->process_id()));
    const auto unsent = take_unsent(unsent_owner(), compression_options(setup.config.ps).push);
    if (!unsent.empty()) link->load_residuals(unsent);
    has_taken = true;
    const auto trace_file = [&](int) { return run_dir / storage::RunDir::worker_trace_name(role.worker); };
    StepTrace trace(setup, nullptr, {.steps = traced, .part = part_of_worker(setup, role.worker), .file = trace_file});
    Worker worker(setup, role, link, records.get(), trace);
    run_traced(trace, [&] { worker.run(); });
    trace.finish();
    end("done");
    log_result(
        concat("worker ", role.worker, ": the run is complete after ", worker.pushes(), " pushes of this worker"));
    return worker.summary();
  } catch (const InterruptedError&) {
    end("interrupted");
    save();
    throw;
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::kDiverged) save();
    throw Error(report_failure(error));
  } catch (...) {
    const std::string advice = less_memory(setup.config);
    throw Error(
        report_failure(pipeline::describe_failure(std::current_exception(), "training", {.less_memory = advice})));
  }
}

}  // namespace

nlohmann::ordered_json run_worker(const config::Config& config, const ServerRole& role, const Launch& launch,
                                  const WorkerFiles& wanted) {
  WorkerFiles files = wanted;
  check_trace(!files.traced.is_empty(), config);
  if (!files.traced.is_empty() && files.run_dir.empty()) {
    log_warning("worker ", role.worker, " is not traced: it writes no files without its own --run-dir");
    files.traced = {};
  }
  const StopSignal stop_signal(launch.end_process ? StopSignal::Afterwards::kIgnored
                                                  : StopSignal::Afterwards::kAsBefore);
  check_run_dir(files.run_dir);
  const ProcessRank of_launch = process_rank(launch.world);
  ProcessRank process{.local_rank = of_launch.local_rank, .local_size = of_launch.local_size};
  // Without a launcher, workers of a loopback server share one machine.
  if (launch.world.local_size == 0 && (role.host == "localhost" || comm::is_loopback(role.host)))
    process.cores = static_cast<double>(device::available_cores()) / config.ps.workers;
  Setup setup = make_setup(config, process);
  setup.servers = addresses_of(role);
  check_policy(setup);
  refuse_too_many_threads(setup);
  log_own_cores(setup);
  identify_data(setup);
  log_info("worker ", role.worker, ": connecting to the parameter server at ", role.host, ":", role.port);
  std::string constants;
  const auto link = std::make_shared<ps::NetworkLink>(link_options(setup, role, launch, constants));
  if (link->was_over()) {
    log_result(concat("worker ", role.worker, ": the run was complete before this worker connected"));
    return {{"worker", role.worker}, {"outcome", "done"}, {"pushes", 0}, {"examples", 0}};
  }
  log_info("worker ", role.worker, " has joined the parameter server at ", role.host, ":", role.port);
  setup.take(Constants::from_json(nlohmann::json::parse(constants, nullptr, false), "the server"));
  return work(setup, role, link, files);
}

}  // namespace sluice::train
