#include "pipeline/executor.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "core/concat.h"
#include "core/log.h"
#include "pipeline/channel.h"
#include "pipeline/failure.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/stream_spans.h"

namespace sluice::pipeline {
namespace {

// A tensor on its way between neighbouring stages.
struct Message {
  MicroBatchId micro_batch;
  at::Tensor tensor;  // undefined for an empty micro-batch
  device::Event ready;
};

// Another stage failed: this one has nothing to add to the report.
struct StoppedByNeighbour {};

std::vector<Place> make_places(const std::vector<std::vector<device::Device>>& devices, int cpu_threads) {
  std::vector<Place> places;
  for (int replica = 0; replica < static_cast<int>(devices.size()); ++replica) {
    for (int stage = 0; stage < static_cast<int>(devices[replica].size()); ++stage) {
      places.push_back({ReplicaId{replica}, StageId{stage}, devices[replica][stage], cpu_threads});
    }
  }
  return places;
}

std::string place_name(ReplicaId replica, StageId stage) {
  return concat("replica ", index(replica), " stage ", index(stage));
}

}  // namespace

std::optional<std::string> why_not_run(const Schedule& schedule) {
  if (splits_backward(schedule)) return "cuts the backward into I and W";
  if (most_stages_per_device(schedule) > 1) return "gives a device several stages";
  const auto is_forward_or_backward = [](const Action& action) {
    return !action.overlaps_next && (action.op == Op::kForward || action.op == Op::kBackward);
  };
  for (const auto& actions : schedule.devices) {
    if (!std::ranges::all_of(actions, is_forward_or_backward)) return "has overlapped pairs or REDUCE_GRAD";
  }
  return std::nullopt;
}

// What lives as long as any worker thread may touch it, even one that had to be abandoned.
struct Executor::Grid {
  explicit Grid(bool record_spans) : recorder(record_spans) {}

  StageGrid stages;
  Recorder recorder;
  std::vector<Track*> tracks;  // [place]

  [[nodiscard]] int replicas() const { return static_cast<int>(stages.size()); }
  [[nodiscard]] int stages_per_replica() const { return static_cast<int>(stages.front().size()); }
  [[nodiscard]] int place(ReplicaId replica, StageId stage) const {
    return index(replica) * stages_per_replica() + index(stage);
  }
  [[nodiscard]] StreamSpans open_spans(int place, const device::Stream& stream) {
    return {recorder.open(*tracks[place]), stream};
  }
};

// One run of a schedule: the channels, the results, and where every worker is.
struct Executor::Pass {
  Pass(std::shared_ptr<Grid> grid_of_pass, PassRequest request_of_pass);

  void work(const Place& place, const device::Stream& stream);
  void close_channels();
  [[nodiscard]] std::string current_action(int place) const;
  void log_schedule(const Place& failed) const;

  std::shared_ptr<Grid> grid;
  PassRequest request;
  PassResult results;
  std::vector<nn::FlopCount> flops;                // [place]
  std::vector<Channel<Message>> activations;       // [place]: into this stage, from the stage before
  std::vector<Channel<Message>> gradients;         // [place]: into this stage, from the stage after
  std::vector<std::atomic<std::size_t>> position;  // [place]: index of the current action

 private:
  // What a worker carries through its actions.
  struct Worker {
    const Place& place;
    const device::Stream& stream;
    Stage& stage;
    StreamSpans spans;
    int index;
    bool is_first;
    bool is_last;
    MicroBatchId last_backward;
  };

  void run_actions(Worker& worker);
  void forward(Worker& worker, MicroBatchId micro_batch);
  void backward(Worker& worker, MicroBatchId micro_batch);
  void finish(Worker& worker, MicroBatchId micro_batch, const at::Tensor& logits);
  [[nodiscard]] at::Tensor receive(Worker& worker, Channel<Message>& channel, MicroBatchId micro_batch);
  void send(Worker& worker, Channel<Message>& channel, MicroBatchId micro_batch, const at::Tensor& tensor);
  [[nodiscard]] at::Tensor load(Worker& worker, MicroBatchId micro_batch, const at::Tensor& samples);
  [[nodiscard]] const MicroBatch& micro_batch_of(const Worker& worker, MicroBatchId micro_batch) const {
    return request.micro_batches[index(worker.place.replica)][index(micro_batch)];
  }
  [[nodiscard]] const std::vector<Action>& actions(const Place& place) const {
    return request.schedule.devices[index(place.stage)];
  }
  [[nodiscard]] MicroBatchId last_backward_of(const Place& place) const;
};

Executor::Pass::Pass(std::shared_ptr<Grid> grid_of_pass, PassRequest request_of_pass)
    : grid(std::move(grid_of_pass)),
      request(std::move(request_of_pass)),
      results{
          {static_cast<std::size_t>(grid->replicas()), std::vector<MicroBatchResult>(request.schedule.micro_batches)}},
      flops(grid->tracks.size()),
      activations(grid->tracks.size()),
      gradients(grid->tracks.size()),
      position(grid->tracks.size()) {
  check(request.schedule.stages == grid->stages_per_replica() &&
            static_cast<int>(request.schedule.devices.size()) == grid->stages_per_replica(),
        "the executor runs schedules of one stage per device, with as many stages as it has");
  check(static_cast<int>(request.micro_batches.size()) == grid->replicas(), "one list of micro-batches per replica");
  for (const auto& of_replica : request.micro_batches) {
    check(static_cast<int>(of_replica.size()) == request.schedule.micro_batches,
          "one micro-batch per slot of the schedule");
  }
}

void Executor::Pass::close_channels() {
  for (auto& channel : activations) channel.close();
  for (auto& channel : gradients) channel.close();
}

std::string Executor::Pass::current_action(int place) const {
  const auto& list = request.schedule.devices[place % grid->stages_per_replica()];
  const std::size_t at = position[place].load(std::memory_order_relaxed);
  if (at >= list.size()) return "after its last action";
  return concat("at action ", to_text(list[at]), " (", at + 1, " of ", list.size(), ", micro-batch ",
                index(list[at].micro_batch), ")");
}

void Executor::Pass::log_schedule(const Place& failed) const {
  ActionMark mark{{}, index(failed.stage)};
  for (int stage = 0; stage < grid->stages_per_replica(); ++stage) {
    mark.current.push_back(position[grid->place(failed.replica, StageId{stage})].load(std::memory_order_relaxed));
  }
  log_lines(concat("replica ", index(failed.replica), " ran this schedule (", request.schedule.name,
                   "), each device's action in brackets:\n", draw_grid(request.schedule, mark)),
            LogLevel::kWarning);
}

MicroBatchId Executor::Pass::last_backward_of(const Place& place) const {
  MicroBatchId last{-1};
  for (const Action& action : actions(place)) {
    const bool has_samples = request.micro_batches[index(place.replica)][index(action.micro_batch)].samples() > 0;
    if (action.op == Op::kBackward && has_samples) last = action.micro_batch;
  }
  return last;
}

void Executor::Pass::work(const Place& place, const device::Stream& stream) {
  Stage& stage = *grid->stages[index(place.replica)][index(place.stage)];
  const int at = grid->place(place.replica, place.stage);
  Worker worker{place,
                stream,
                stage,
                grid->open_spans(at, stream),
                at,
                index(place.stage) == 0,
                index(place.stage) + 1 == grid->stages_per_replica(),
                last_backward_of(place)};
  static_cast<void>(nn::take_flops());  // of a pass that failed
  try {
    if (request.context.training) stage.zero_gradients();
    run_actions(worker);
    if (request.sync) {
      const StreamSpanScope reducing(worker.spans, Phase::kAllReduce);
      request.sync->on_backward_done(place.replica, place.stage);
    }
    stream.synchronize();
    worker.spans.settle();
    flops[at] = nn::take_flops();
  } catch (const StoppedByNeighbour&) {
    stage.drop_in_flight();
  } catch (...) {
    const std::string where = concat(place_name(place.replica, place.stage), " ", current_action(at));
    stage.drop_in_flight();
    log_schedule(place);
    throw describe_failure(std::current_exception(), where,
                           request.context.training ? kLessTrainingMemory : kLessEvaluationMemory);
  }
}

void Executor::Pass::run_actions(Worker& worker) {
  const auto& list = actions(worker.place);
  for (std::size_t i = 0; i < list.size(); ++i) {
    position[worker.index].store(i, std::memory_order_relaxed);
    check(list[i].stage == worker.place.stage, "an action belongs to the stage of its device");
    switch (list[i].op) {
      case Op::kForward: forward(worker, list[i].micro_batch); break;
      case Op::kBackward: backward(worker, list[i].micro_batch); break;
      case Op::kInputGradient:
      case Op::kWeightGradient:
      case Op::kReduceGradient: check(false, "the executor was given an action that why_not_run() refuses"); break;
    }
  }
  position[worker.index].store(list.size(), std::memory_order_relaxed);
}

at::Tensor Executor::Pass::receive(Worker& worker, Channel<Message>& channel, MicroBatchId micro_batch) {
  std::optional<Message> message;
  {
    const StreamSpanScope span(worker.spans, Phase::kReceiveWait, micro_batch);
    message = channel.pop();
    if (!message) throw StoppedByNeighbour{};
    worker.stream.wait(message->ready);
  }
  check(message->micro_batch == micro_batch, concat("received micro-batch ", index(message->micro_batch), " where ",
                                                    index(micro_batch), " was due: send and receive order differ"));
  const StreamSpanScope span(worker.spans, Phase::kReceive, micro_batch);
  return device::transfer(message->tensor, message->ready, worker.stream);
}

void Executor::Pass::send(Worker& worker, Channel<Message>& channel, MicroBatchId micro_batch,
                          const at::Tensor& tensor) {
  device::Event ready;
  {
    const StreamSpanScope span(worker.spans, Phase::kSend, micro_batch);
    ready = worker.stream.record();
  }
  channel.push({micro_batch, tensor, ready});  // may cost the processor: the receiver wakes
}

at::Tensor Executor::Pass::load(Worker& worker, MicroBatchId micro_batch, const at::Tensor& samples) {
  const StreamSpanScope span(worker.spans, Phase::kHostToDevice, micro_batch);
  return device::transfer(samples, {}, worker.stream);
}

void Executor::Pass::forward(Worker& worker, MicroBatchId micro_batch) {
  const MicroBatch& batch = micro_batch_of(worker, micro_batch);
  at::Tensor input = worker.is_first ? load(worker, micro_batch, batch.inputs)
                                     : receive(worker, activations[worker.index], micro_batch);
  at::Tensor output;
  if (batch.samples() > 0) {
    const StreamSpanScope span(worker.spans, Phase::kForward, micro_batch);
    nn::ForwardContext context = request.context;
    context.sample_ids = batch.sample_ids;
    output = worker.stage.forward(micro_batch, input, context, !worker.is_first);
    if (worker.is_last) finish(worker, micro_batch, output);
  }
  if (!worker.is_last) send(worker, activations[worker.index + 1], micro_batch, output);
}

void Executor::Pass::finish(Worker& worker, MicroBatchId micro_batch, const at::Tensor& logits) {
  const at::Tensor targets = load(worker, micro_batch, micro_batch_of(worker, micro_batch).targets);
  const StreamSpanScope span(worker.spans, Phase::kLoss, micro_batch);
  MicroBatchResult& result = results.micro_batches[index(worker.place.replica)][index(micro_batch)];
  result.logits = logits;
  if (request.context.training) {
    result.loss = worker.stage.apply_loss(micro_batch, targets, request.loss, request.gradient_scale);
  } else {
    const at::NoGradGuard no_grad;
    result.loss = request.loss(logits, targets);
  }
}

void Executor::Pass::backward(Worker& worker, MicroBatchId micro_batch) {
  at::Tensor output_gradient;
  if (!worker.is_last) output_gradient = receive(worker, gradients[worker.index], micro_batch);
  at::Tensor input_gradient;
  if (micro_batch_of(worker, micro_batch).samples() > 0) {
    const StreamSpanScope span(worker.spans, Phase::kBackward, micro_batch);
    GradientReady on_ready;
    if (request.sync && micro_batch == worker.last_backward) {
      on_ready = [this, &worker](ParamId param) {
        const StreamSpanScope reducing(worker.spans, Phase::kAllReduce);
        request.sync->on_grad_ready(worker.place.replica, param);
      };
    }
    input_gradient = worker.stage.backward(micro_batch, output_gradient, on_ready);
  }
  if (!worker.is_first) send(worker, gradients[worker.index - 1], micro_batch, input_gradient);
}

Executor::Executor(StageGrid grid, const std::vector<std::vector<device::Device>>& devices, ExecutorOptions options)
    : grid_(std::make_shared<Grid>(options.record_spans)),
      timeout_(options.step_timeout),
      pool_(make_places(devices, options.cpu_threads)) {
  grid_->stages = std::move(grid);
  for (const Place& place : pool_.places()) {
    grid_->tracks.push_back(&grid_->recorder.add_track(place.replica, place.stage));
  }
}

Executor::~Executor() = default;

int Executor::replicas() const { return grid_->replicas(); }
int Executor::stages() const { return grid_->stages_per_replica(); }
Stage& Executor::stage(ReplicaId replica, StageId stage) const { return *grid_->stages[index(replica)][index(stage)]; }
Recorder& Executor::recorder() { return grid_->recorder; }

void Executor::wait_for_caller() const {
  for (const Place& place : pool_.places()) device::Stream::current(place.device).synchronize();
}

PassResult Executor::run(PassRequest request) {
  const auto pass = std::make_shared<Pass>(grid_, std::move(request));
  const auto job = [pass, places = pool_.places(), streams = pool_.streams()](int place) {
    pass->work(places[place], streams[place]);
  };
  pool_.run(job, {.timeout = timeout_,
                  .on_failure = [pass] { pass->close_channels(); },
                  .describe = [pass](int place) { return pass->current_action(place); }});
  for (const nn::FlopCount& of_place : pass->flops) nn::add(pass->results.flops, of_place);
  return std::move(pass->results);
}

void Executor::for_each_place(Phase phase, const std::function<void(ReplicaId, StageId, Stage&)>& job) {
  const auto on_place = [grid = grid_, places = pool_.places(), streams = pool_.streams(), phase, job](int place) {
    const Place& where = places[place];
    try {
      StreamSpans spans = grid->open_spans(place, streams[place]);
      {
        const StreamSpanScope span(spans, phase);
        job(where.replica, where.stage, *grid->stages[index(where.replica)][index(where.stage)]);
      }
      streams[place].synchronize();
      spans.settle();
    } catch (...) {
      throw describe_failure(std::current_exception(), place_name(where.replica, where.stage));
    }
  };
  pool_.run(on_place, {.timeout = timeout_});
}

}  // namespace sluice::pipeline
