#include "train/serve/virtual_workers.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "core/check.h"
#include "data/ledger.h"
#include "data/sample_reader.h"
#include "ps/virtual_cluster.h"
#include "ps/worker_sync.h"
#include "train/serve/server_run.h"
#include "train/setup/model_options.h"
#include "train/setup/server_settings.h"
#include "train/setup/worker_share.h"

namespace sluice::train {
namespace {

ps::VirtualOptions virtual_options(const config::Config& config) {
  const config::PsConfig& ps = config.ps;
  const ps::WorkerCosts costs{.sample_s = ps.sample_s, .step_s = ps.step_s, .bytes_per_s = ps.bytes_per_s};
  return {.workers = std::vector(static_cast<std::size_t>(ps.workers), costs),
          .stragglers = straggler_options(config),
          .compression = compression_options(ps)};
}

class OwnOptimizer {
 public:
  void put_into(engine::Composition& composition) const {
    std::size_t next = 0;
    for (const auto& of_stage : composition.optimizers) {
      of_stage->set_steps(steps_);
      for (const auto& [name, state] : of_stage->states()) {
        if (states_.empty())  // first turn
          state.zero_();
        else
          state.copy_(states_[next++]);
      }
    }
  }
  void take_from(const engine::Composition& composition) {
    states_.clear();
    steps_ = composition.optimizers.front()->steps();
    for (const auto& of_stage : composition.optimizers) {
      for (const auto& [name, state] : of_stage->states()) states_.push_back(state.clone());
    }
  }

 private:
  std::int64_t steps_ = 0;
  std::vector<at::Tensor> states_;  // [stage, state]
};

class VirtualWorkers final : public UpdateSource {
 public:
  explicit VirtualWorkers(const Setup& setup)
      : setup_(setup),
        policy_(policy_of_server(setup.config.ps)),
        rate_(rate_of_server(setup)),
        ledger_(ledger_options(setup)),
        reader_(*setup.train_set, train_loader_options(setup).reading()),
        steps_(static_cast<std::size_t>(setup.config.ps.workers)) {}

  engine::SyncFactory sync_factory() override {
    return [this](engine::SyncRequest request) { return make_sync(std::move(request)); };
  }

  optim::OptimizerOptions optimizer() const override { return optimizer_options(setup_.config); }

  std::optional<RecordedStep> next_update(engine::Engine& engine, const engine::StepRequest& request) override {
    if (server_ == nullptr) start(engine);
    if (request.stop) return std::nullopt;
    engine_ = &engine;
    request_ = request;
    const Nanoseconds begin = now_ns();
    const ps::ServerProgress before = server_->progress();
    const ps::VirtualUpdate update = cluster_->next_update();
    RecordedStep done = step_of(setup_, {.done = update.done,
                                         .pushes = update.pushes,
                                         .before = before,
                                         .after = server_->progress(),
                                         .seconds = to_s(update.at - updated_at_),
                                         .counts_scores = request.counts_scores});
    for (std::size_t p = 0; p < update.pushes.size(); ++p) {
      const ps::PushDone& push = update.pushes[p];
      const Step& made = steps_[of(push.record)];
      ledger_.push_first(made.lease.id, push.record.examples);  // only the slices that ran
      add_to(done.stats.flops, made.flops);
      nlohmann::ordered_json& fields = done.events[p].second;
      fields["bytes"] = push.bytes;
      fields["virtual_s"] = to_s(update.at);
    }
    updated_at_ = update.at;
    ps::ServerState state = server_->state();
    if (is_local_) state.optimizer.clear();  // the engine's optimizer belongs to the workers
    load_from_server(engine, server_->layout(), state);
    done.spans = engine.recorder().collect(update.done.update.version, begin, now_ns());
    done.spans.turns = std::exchange(turns_, {});
    return done;
  }

  bool holds_weights() const override { return true; }
  void want_weights() override {}
  nlohmann::ordered_json fields() const override { return fields_of(setup_.config.ps, policy_); }

 private:
  class LinkOfNow final : public ps::ServerLink {
   public:
    explicit LinkOfNow(ps::Layout layout) : layout_(std::move(layout)) {}
    [[nodiscard]] const ps::Layout& layout() const override { return layout_; }
    [[nodiscard]] std::int64_t pull(ps::Tensors& into) override { return of_worker->pull(into); }
    void push(ps::Push push) override { of_worker->push(std::move(push)); }

    std::shared_ptr<ps::VirtualLink> of_worker;

   private:
    ps::Layout layout_;
  };
  // A worker's work from its lease until its push is in an update.
  struct Step {
    data::Lease lease;
    FlopCount flops{};
    OwnOptimizer optimizer;  // if workers make local steps
  };

  static std::size_t of(const ps::PushRecord& record) { return static_cast<std::size_t>(record.worker); }

  std::shared_ptr<comm::ReplicaSync> make_sync(engine::SyncRequest request) {
    check(server_ == nullptr, "the engine's sync is made before the virtual server");
    stages_ = request.stages;
    link_ = std::make_shared<LinkOfNow>(ps::layout_of(stages_, {.shards = setup_.config.ps.shards}));
    const auto admission = [this](ReplicaId, MicroBatchId slice) {
      return clock_ == nullptr || clock_->admits(slices_[index(slice)]);
    };
    const ps::WorkerSyncOptions options{.payload = policy_.payload, .admission = admission};
    sync_ = std::make_shared<ps::WorkerSync>(std::move(request.stages), request.bucket_bytes, link_, options);
    return sync_;
  }

  void start(engine::Engine& engine) {
    engine_ = &engine;
    server_ = std::make_unique<ps::Server>(link_->layout(), ps::values_of(stages_), ps::statistics_of(stages_),
                                           server_options(setup_));
    cluster_ = std::make_unique<ps::VirtualCluster>(
        *server_, virtual_options(setup_.config),
        [this](ps::WorkerId worker, std::int64_t step, ps::SliceClock& clock) { compute(worker, step, clock); });
  }

  void compute(ps::WorkerId worker, std::int64_t round, ps::SliceClock& clock) {
    Step& own = steps_[static_cast<std::size_t>(worker)];
    const WorkerShare share = share_of(setup_, static_cast<int>(worker));
    own.lease = *ledger_.lease(share.samples);  // the ledger never ends
    own.flops = {};
    link_->of_worker = cluster_->link(worker);
    sync_->begin_round(round_of(own.lease, share));
    if (is_local_) own.optimizer.put_into(engine_->composition());
    std::int64_t step = round * share.steps();
    const double lr = rate_(server_->progress());
    for (const data::Lease& samples : steps_of(own.lease, share))
      add_to(own.flops, take_turn(worker, samples, step++, lr, clock).flops);
    if (is_local_) own.optimizer.take_from(engine_->composition());
  }

  StepStats take_turn(ps::WorkerId worker, const data::Lease& samples, std::int64_t step, double lr,
                      ps::SliceClock& clock) {
    const Nanoseconds begin = now_ns();
    StepStats stats = run_step(samples, step, lr, clock);
    turns_.push_back({static_cast<int>(worker), begin, now_ns()});
    return stats;
  }

  StepStats run_step(const data::Lease& samples, std::int64_t step, double lr, ps::SliceClock& clock) {
    const pipeline::MicroBatch batch = read(samples);
    const bool has_deadline = policy_.deadline > 0;
    if (!has_deadline) (void)clock.admits(batch.samples());
    slices_ = pipeline::split_sizes(batch.samples(), engine_->plan().chunks);
    clock_ = has_deadline ? &clock : nullptr;
    StepStats stats = engine_->step().run({batch}, step, lr, request_);
    clock_ = nullptr;
    return stats;
  }

  pipeline::MicroBatch read(const data::Lease& samples) {
    const SpanScope span(engine_->recorder().process(), Phase::kLoadWait);
    return read_lease(reader_, samples, *setup_.task);
  }

  const Setup& setup_;
  ps::SyncPolicy policy_;
  // The workers' learning rate, or, if the server has it, only for messages.
  std::function<double(const ps::ServerProgress&)> rate_;
  data::Ledger ledger_;
  data::SampleReader reader_;
  std::vector<comm::SyncedStage> stages_;
  bool is_local_ = workers_update(setup_.config);
  std::shared_ptr<LinkOfNow> link_;
  std::shared_ptr<ps::WorkerSync> sync_;
  std::unique_ptr<ps::Server> server_;
  std::unique_ptr<ps::VirtualCluster> cluster_;
  std::vector<Step> steps_;
  std::vector<StepSpans::Turn> turns_;
  engine::Engine* engine_ = nullptr;
  engine::StepRequest request_;
  ps::SliceClock* clock_ = nullptr;  // of the running step; null without a deadline
  std::vector<std::int64_t> slices_;
  Nanoseconds updated_at_ = 0;  // virtual
};

}  // namespace

std::unique_ptr<UpdateSource> make_virtual_workers(const Setup& setup) {
  return std::make_unique<VirtualWorkers>(setup);
}

}  // namespace sluice::train
