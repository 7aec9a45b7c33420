#include "train/virtual_workers.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "core/check.h"
#include "core/concat.h"
#include "core/divided_up.h"
#include "data/ledger.h"
#include "data/sample_reader.h"
#include "engine/state.h"
#include "ps/virtual_cluster.h"
#include "ps/worker_sync.h"
#include "train/composition.h"

namespace sluice::train {
namespace {

ps::SyncPolicy policy_of_server(const config::PsConfig& config) {
  ps::SyncPolicy policy = ps::preset_policy(config.policy, config.workers);
  if (config.quorum) policy.quorum = *config.quorum;
  if (config.staleness) policy.staleness = *config.staleness;
  policy.grace = std::llround(config.grace_s * 1e9);
  policy.deadline = std::llround(config.time_limit_s * 1e9);
  ps::check_policy(policy, concat("ps.policy=\"", config.policy, "\""));
  return policy;
}

ps::VirtualOptions virtual_options(const config::Config& config) {
  const config::PsConfig& ps = config.ps;
  const ps::WorkerCosts costs{.sample_s = ps.sample_s, .step_s = ps.step_s, .bytes_per_s = ps.bytes_per_s};
  return {.workers = std::vector(static_cast<std::size_t>(ps.workers), costs),
          .stragglers = {.kind = ps.induce,
                         .seed = config.train.seed,
                         .scale = ps.induce_scale,
                         .shift_s = ps.induce_shift_s,
                         .mean_s = ps.induce_mean_s}};
}

nlohmann::ordered_json fields_of(const ps::PushDone& push, const ps::VirtualUpdate& update) {
  return {{"step", update.done.update.version}, {"worker", static_cast<int>(push.record.worker)},
          {"sequence", push.record.sequence},   {"version", push.record.base_version},
          {"staleness", push.staleness},        {"examples", push.record.examples},
          {"compute_s", push.times.compute_s},  {"idle_s", push.times.idle_s},
          {"send_s", push.times.send_s},        {"sleep_s", push.times.stall_s},
          {"virtual_s", to_s(update.at)}};
}

// What several workers have done for one update, as one step.
void add(StepStats& sum, const StepStats& one) {
  const auto weight = [](const StepStats& of) { return static_cast<double>(of.targets); };
  if (sum.targets + one.targets > 0)
    sum.loss = (sum.loss * weight(sum) + one.loss * weight(one)) / (weight(sum) + weight(one));
  sum.samples += one.samples;
  sum.targets += one.targets;
  if (one.correct) sum.correct = sum.correct.value_or(EvalCounts{}) += *one.correct;
  for (std::size_t i = 0; i < sum.flops.size(); ++i) sum.flops[i] += one.flops[i];
}

}  // namespace

class VirtualWorkers::State {
 public:
  explicit State(const Setup& setup)
      : setup_(setup),
        policy_(policy_of_server(setup.config.ps)),
        ledger_({.seed = setup.config.train.seed, .samples = setup.train_set->size()}),
        reader_(*setup.train_set, train_loader_options(setup).reading()),
        steps_(static_cast<std::size_t>(setup.config.ps.workers)) {}

  std::shared_ptr<comm::ReplicaSync> make_sync(engine::SyncRequest request) {
    check(server_ == nullptr, "workers in virtual time are composed anew");
    stages_ = request.stages;
    link_ = std::make_shared<LinkOfNow>(ps::layout_of(stages_, {.shards = setup_.config.ps.shards}));
    return std::make_shared<ps::WorkerSync>(
        std::move(request.stages), request.bucket_bytes, link_,
        [this](ReplicaId, MicroBatchId slice) { return clock_ == nullptr || clock_->admits(slices_[index(slice)]); });
  }

  RecordedStep next_update(engine::Engine& engine, const engine::StepWishes& wishes) {
    if (server_ == nullptr) start(engine);
    engine_ = &engine;
    wishes_ = wishes;
    const Nanoseconds begin = now_ns();
    const std::int64_t epoch = ledger_.epochs_over();
    const ps::VirtualUpdate update = cluster_->next_update();
    RecordedStep done;
    for (const ps::PushDone& push : update.pushes) {
      settle(push.record);
      add(done.stats, steps_[of(push.record)].stats);
      done.pushes.push_back(fields_of(push, update));
    }
    if (setup_.config.train.clip_norm > 0) done.stats.gradient_norm = update.done.gradient_norm;
    load_from_server(engine);
    done.batch = place_in(epoch, done.stats.samples);
    done.spans = engine.recorder().collect(update.done.update.version, begin, now_ns());
    return done;
  }

  nlohmann::ordered_json fields() const {
    const config::PsConfig& ps = setup_.config.ps;
    return {{"policy", ps.policy},      {"clock", ps.clock},
            {"workers", ps.workers},    {"worker_batch", ps.worker_batch},
            {"quorum", policy_.quorum}, {"staleness", policy_.staleness},
            {"grace_s", ps.grace_s},    {"time_limit_s", ps.time_limit_s},
            {"induce", ps.induce}};
  }

 private:
  // To the server, for the worker whose turn it is.
  class LinkOfNow final : public ps::ServerLink {
   public:
    explicit LinkOfNow(ps::Layout layout) : layout_(std::move(layout)) {}
    [[nodiscard]] const ps::Layout& layout() const override { return layout_; }
    [[nodiscard]] std::int64_t pull(ps::Tensors& into) override { return of_worker->pull(into); }
    void push(ps::PushRecord record, ps::Tensors pushed) override { of_worker->push(record, std::move(pushed)); }

    std::shared_ptr<ps::VirtualLink> of_worker;

   private:
    ps::Layout layout_;
  };
  // Of a worker, from its lease until its push is in an update.
  struct Step {
    data::Lease lease;
    StepStats stats;
  };

  static std::size_t of(const ps::PushRecord& record) { return static_cast<std::size_t>(record.worker); }

  void start(engine::Engine& engine) {
    engine_ = &engine;
    const config::Config& config = setup_.config;
    const optim::LrSchedule rates = lr_schedule(setup_);
    ps::ServerOptions options{.policy = policy_,
                              .optimizer = optimizer_options(config),
                              .lr = [rates](const ps::ServerProgress& at) { return rates.at(at.version); },
                              .clip_norm = config.train.clip_norm};
    server_ = std::make_unique<ps::Server>(link_->layout(), ps::values_of(stages_), ps::statistics_of(stages_),
                                           std::move(options));
    cluster_ = std::make_unique<ps::VirtualCluster>(
        *server_, virtual_options(config),
        [this](ps::WorkerId worker, std::int64_t step, ps::SliceClock& clock) { compute(worker, step, clock); });
  }

  // The engine plays this worker for one step.
  void compute(ps::WorkerId worker, std::int64_t step, ps::SliceClock& clock) {
    Step& own = steps_[static_cast<std::size_t>(worker)];
    const pipeline::MicroBatch batch = take_batch(own);
    const bool has_deadline = policy_.deadline > 0;
    if (!has_deadline) (void)clock.admits(batch.samples());
    slices_ = pipeline::split_sizes(batch.samples(), engine_->plan().chunks);
    clock_ = has_deadline ? &clock : nullptr;
    link_->of_worker = cluster_->link(worker);
    own.stats = engine_->step().run({batch}, step, /*lr=*/0, wishes_);
    clock_ = nullptr;
  }

  pipeline::MicroBatch take_batch(Step& own) {
    const SpanScope span(engine_->recorder().process(), Phase::kLoadWait);
    own.lease = *ledger_.lease(setup_.global_batch);  // it is endless
    const int view = reader_.view_in(own.lease.epoch);
    const data::Samples samples = reader_.read(own.lease.samples, view);
    return {.inputs = samples.inputs,
            .targets = samples.targets,
            .sample_ids = at::tensor(own.lease.samples, at::kLong),
            .view = view};
  }

  // The slices that have run are the first ones.
  void settle(const ps::PushRecord& record) {
    std::vector<std::int64_t> ran(static_cast<std::size_t>(record.examples));
    for (std::size_t i = 0; i < ran.size(); ++i) ran[i] = static_cast<std::int64_t>(i);
    ledger_.push(steps_[of(record)].lease.id, ran);
  }

  // Where the run stands in its data, as a batch of the first epoch that was not over.
  data::Batch place_in(std::int64_t epoch, std::int64_t samples) const {
    data::Batch batch{.epoch = epoch, .batches = setup_.batches_per_epoch, .global_size = samples};
    const std::int64_t pushed = ledger_.counts(epoch).pushed;
    const bool is_over = ledger_.epochs_over() > epoch;
    const std::int64_t last = batch.batches - 1;
    const std::int64_t begun = std::max<std::int64_t>(divided_up(pushed, setup_.global_batch), 1);
    batch.batch = is_over ? last : std::max<std::int64_t>(std::min(begun, last) - 1, 0);
    return batch;
  }

  void load_from_server(engine::Engine& engine) const {
    const ps::Layout& layout = server_->layout();
    engine::State state{.model = engine::model_tensors(engine.composition()),
                        .optimizer_steps = server_->progress().version};
    const ps::Weights weights = server_->weights();
    const auto put = [&](storage::TensorMap& into, const std::string& prefix, const std::vector<at::Tensor>& shards) {
      const std::vector<at::Tensor> values = ps::from_shards(layout, shards);
      for (std::size_t p = 0; p < values.size(); ++p)
        into[concat(prefix, layout.parameters[p].name)] = ps::in_shape(layout.parameters[p], values[p]);
    };
    put(state.model, "", weights.tensors.shards);
    std::int64_t begin = 0;
    for (const auto& [name, elements] : layout.statistics) {
      state.model.at(name) = weights.tensors.statistics.narrow(0, begin, elements);
      begin += elements;
    }
    for (std::size_t i = 0; i < server_->shards().front().optimizer().states().size(); ++i) {
      std::vector<at::Tensor> shards;
      for (const ps::ShardState& shard : server_->shards()) shards.push_back(shard.optimizer().states()[i].second);
      put(state.optimizer, concat(server_->shards().front().optimizer().states()[i].first, "/"), shards);
    }
    engine.load(state, "the parameter server");
  }

  const Setup& setup_;
  ps::SyncPolicy policy_;
  data::Ledger ledger_;
  data::SampleReader reader_;
  std::vector<comm::SyncedStage> stages_;
  std::shared_ptr<LinkOfNow> link_;
  std::unique_ptr<ps::Server> server_;
  std::unique_ptr<ps::VirtualCluster> cluster_;
  std::vector<Step> steps_;  // [worker]
  engine::Engine* engine_ = nullptr;
  engine::StepWishes wishes_;
  ps::SliceClock* clock_ = nullptr;  // of the step that runs; null: it has no deadline
  std::vector<std::int64_t> slices_;
};

void check_workers(const Setup& setup) {
  if (setup.config.replicas.sync == "ps") static_cast<void>(policy_of_server(setup.config.ps));
}

VirtualWorkers::VirtualWorkers(const Setup& setup) : state_(std::make_unique<State>(setup)) {}
VirtualWorkers::~VirtualWorkers() = default;

engine::SyncFactory VirtualWorkers::sync_factory() {
  return [this](engine::SyncRequest request) { return state_->make_sync(std::move(request)); };
}

RecordedStep VirtualWorkers::next_update(engine::Engine& engine, const engine::StepWishes& wishes) {
  return state_->next_update(engine, wishes);
}

nlohmann::ordered_json VirtualWorkers::fields() const { return state_->fields(); }

}  // namespace sluice::train
