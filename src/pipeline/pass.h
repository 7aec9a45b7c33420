// pass: one run of a schedule by the executor's device threads. Each thread runs the actions of its device and sends
// results to other stages through mailboxes. Internal to the executor. pass_report.h describes failures.
// Threads: work() once per slot, each from its own thread; the other functions from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/stream.h"
#include "pipeline/device_threads.h"
#include "pipeline/grid.h"
#include "pipeline/mailbox.h"
#include "pipeline/pass_report.h"
#include "pipeline/pass_request.h"
#include "pipeline/statistics_exchange.h"

namespace sluice::pipeline {

class Pass {
 public:
  Pass(std::shared_ptr<Grid> grid, PassRequest request);

  // Errors: any failure of an action, with replica, stage and action; the log shows the schedule.
  void work(const Slot& slot, const SlotStreams& streams);
  // Wakes every waiting thread; these threads end without an error of their own.
  void stop();

  // A snapshot of the current state. Requires: the pass outlives it.
  [[nodiscard]] PassReport report() const;

  [[nodiscard]] PassResult take_result();  // call once, when all work is done

 private:
  struct Message {
    Tensors tensors;  // none for an empty micro-batch
    device::Event ready;
    device::Stream out;  // of the sending slot
  };
  struct DeviceThread;
  class OwnSum;

  void run_prefix(DeviceThread& thread);
  // inputs: of all or some of `samples`, in the loader's format.
  [[nodiscard]] FrozenPrefix::Features run_frozen(DeviceThread& thread, const Action& action, const MicroBatch& samples,
                                                  const Tensors& inputs);
  [[nodiscard]] FrozenPrefix::Features run_frozen_one_by_one(DeviceThread& thread, const Action& action,
                                                             const MicroBatch& samples, const Tensors& inputs);
  // run_frozen() for the inputs whose features are not cached.
  [[nodiscard]] Tensors run_missing_features(DeviceThread& thread, const Action& action, const MicroBatch& samples);
  [[nodiscard]] Tensors frozen_features(DeviceThread& thread, const Action& action);
  void run_actions(DeviceThread& thread);
  void forward(DeviceThread& thread, const Action& action);
  void backward(DeviceThread& thread, const Action& action);  // B or I
  void weight_gradient(DeviceThread& thread, const Action& action);
  void reduce_gradient(DeviceThread& thread, const Action& action);
  [[nodiscard]] Tensors run_forward(DeviceThread& thread, const Action& action, Tensors inputs);
  void score_outputs(DeviceThread& thread, const Action& action, const Tensors& outputs);
  [[nodiscard]] at::Tensor run_loss(DeviceThread& thread, const Action& action, const Tensors& targets);
  // The next two add to the gradients and report those that the action completes to the sync.
  [[nodiscard]] Tensors run_backward(DeviceThread& thread, const Action& action, Tensors gradients);
  void run_weight_gradient(DeviceThread& thread, const Action& action);
  struct Channel {
    Mailbox<Message>& mailbox;
    Border border;
  };
  [[nodiscard]] Tensors receive(DeviceThread& thread, Channel channel, const Action& action);
  void send(DeviceThread& thread, Channel channel, const Action& action, Tensors tensors);
  // Copies from the host without conversion; load_inputs() also converts bytes of images to numbers.
  [[nodiscard]] Tensors load(DeviceThread& thread, const Action& action, Tensors tensors);
  [[nodiscard]] at::Tensor sample_ids_of(DeviceThread& thread, MicroBatchId micro_batch);
  [[nodiscard]] Tensors load_inputs(DeviceThread& thread, const Action& action, const MicroBatch& samples);
  [[nodiscard]] Tensors load_numbers(DeviceThread& thread, const Action& action, const Tensors& inputs,
                                     const at::Tensor& pixel_scale);

  [[nodiscard]] const MicroBatch& micro_batch_of(ReplicaId replica, MicroBatchId micro_batch) const {
    return request_.micro_batches[index(replica)][index(micro_batch)];
  }
  [[nodiscard]] std::string work_at(const Slot& slot, const Action* action) const;
  [[nodiscard]] bool admit(ReplicaId replica, MicroBatchId micro_batch);
  // Whether the micro-batch was admitted. Requires: the calling stage has received a message that comes from the first
  // stage.
  [[nodiscard]] bool runs(ReplicaId replica, MicroBatchId micro_batch) const {
    return result_.micro_batches[index(replica)][index(micro_batch)].has_run;
  }
  [[nodiscard]] const std::vector<Action>& actions_of(DeviceId device) const {
    return request_.schedule.devices[index(device)];
  }
  [[nodiscard]] bool is_last(StageId stage) const { return index(stage) + 1 == request_.schedule.stages; }
  [[nodiscard]] bool splits(const Action& action) const;
  [[nodiscard]] at::Tensor targets_of_tokens(const DeviceThread& thread, const Action& action) const;
  [[nodiscard]] StagePass pass_of(DeviceThread& thread, const Action& action);
  [[nodiscard]] std::vector<std::optional<MicroBatchId>> last_gradients(const Slot& slot) const;
  [[nodiscard]] GradientReady reports_of(DeviceThread& thread, const Action& action);

  std::shared_ptr<Grid> grid_;
  PassRequest request_;
  int first_trained_;  // stages before this one need no gradients
  PassResult result_;
  std::vector<char> splits_;                             // [stage][micro-batch]: its backward is split into I and W
  std::vector<FlopCount> flops_;                         // [slot]
  std::vector<Mailbox<Message>> activations_;            // [replica][stage]: into this stage, from the stage before
  std::vector<Mailbox<Message>> gradients_;              // [replica][stage]: into this stage, from the stage after
  std::vector<Mailbox<Message>> features_;               // [slot]: features of its share of the frozen layers
  std::vector<std::vector<PrefixShare>> prefix_shares_;  // [replica]; empty if no layer is frozen
  // [slot]: written by its own thread, or by an autograd thread that works for it while it waits. Position and wait are
  // one atomic value, so that a reader gets both of the same moment.
  std::vector<std::atomic<Standing>> standings_;
  std::vector<std::unique_ptr<StatisticsExchange>> exchanges_;  // [device]; empty if no statistics are exchanged
};

}  // namespace sluice::pipeline
