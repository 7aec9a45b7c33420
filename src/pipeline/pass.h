// pass: one run of a schedule by the device threads of the executor: each walks the actions of its device, hands
// results to other stages through mailboxes. Not here: what is said when something goes wrong (pass_report.h). Internal
// to the executor.
// Threads: work() once per slot, each from its own thread; the rest from any thread.
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

  // Errors: any failure of an action, said with replica, stage and action; the drawing of the schedule goes to the log.
  void work(const Slot& slot, const SlotStreams& streams);
  // Wakes every thread that waits for another one; they end without an error of their own.
  void stop();

  // Of this moment. Requires: the pass outlives it.
  [[nodiscard]] PassReport report() const;

  [[nodiscard]] PassResult take_result();  // once, when all work is done

 private:
  // A tensor on its way from one stage to the next.
  struct Message {
    at::Tensor tensor;  // undefined for an empty micro-batch
    device::Event ready;
    device::Stream out;  // of the slot that sends it
  };
  struct DeviceThread;
  class OwnSum;

  // The slot's share of the frozen layers' work, for the first stage.
  void run_prefix(DeviceThread& thread);
  // inputs: of all or of some of `samples`, as the loader gives them.
  [[nodiscard]] at::Tensor run_frozen(DeviceThread& thread, const Action& action, const MicroBatch& samples,
                                      const at::Tensor& inputs);
  // As run_frozen(), of the inputs whose rows the feature source does not have.
  [[nodiscard]] at::Tensor run_missing_features(DeviceThread& thread, const Action& action, const MicroBatch& samples);
  [[nodiscard]] at::Tensor frozen_features(DeviceThread& thread, const Action& action);
  static void begin(DeviceThread& thread, Stage& stage);  // of training
  void run_actions(DeviceThread& thread);
  void forward(DeviceThread& thread, const Action& action);
  void backward(DeviceThread& thread, const Action& action);  // B or I
  void weight_gradient(DeviceThread& thread, const Action& action);
  void reduce_gradient(DeviceThread& thread, const Action& action);
  void finish(DeviceThread& thread, const Action& action, const at::Tensor& logits);
  [[nodiscard]] at::Tensor run_loss(DeviceThread& thread, const Action& action, const at::Tensor& targets);
  // Adds to the gradients, and tells the sync of those that the action completes.
  [[nodiscard]] at::Tensor run_backward(DeviceThread& thread, const Action& action, at::Tensor output_gradient);
  void run_weight_gradient(DeviceThread& thread, const Action& action);
  // What an action does on its device, from tensors to tensors: done now, recorded, or run as it was recorded. `work`
  // must not refer to the pass.
  enum class Answer { kCopied, kInPlace };  // in memory of its own, or where the next recorded action may write
  [[nodiscard]] Tensors run(DeviceThread& thread, const Action& action, ActionPart part, Tensors inputs,
                            const device::GraphWork& work, Answer answer = Answer::kCopied);
  // What lies in a mailbox, and what crosses the border by it.
  struct Way {
    Mailbox<Message>& mailbox;
    Border border;
  };
  [[nodiscard]] at::Tensor receive(DeviceThread& thread, Way way, const Action& action);
  void send(DeviceThread& thread, Way way, const Action& action, const at::Tensor& tensor);
  // From the host: as it is; inputs as what layers take.
  [[nodiscard]] at::Tensor load(DeviceThread& thread, const Action& action, const at::Tensor& samples);
  // As dropout reads them: in training on the slot's device, where they come once a micro-batch.
  [[nodiscard]] at::Tensor sample_ids_of(DeviceThread& thread, MicroBatchId micro_batch);
  [[nodiscard]] at::Tensor load_inputs(DeviceThread& thread, const Action& action, const MicroBatch& samples);
  [[nodiscard]] at::Tensor load_numbers(DeviceThread& thread, const Action& action, const at::Tensor& inputs,
                                        const at::Tensor& pixel_scale);

  [[nodiscard]] const MicroBatch& micro_batch_of(ReplicaId replica, MicroBatchId micro_batch) const {
    return request_.micro_batches[index(replica)][index(micro_batch)];
  }
  // What a slot was at in an action, for one that has no memory for it; empty where that is not known.
  [[nodiscard]] std::string work_at(const Slot& slot, const Action* action) const;
  [[nodiscard]] bool admit(ReplicaId replica, MicroBatchId micro_batch);
  // Whether it was admitted; asked by a stage that has its message from the first one.
  [[nodiscard]] bool runs(ReplicaId replica, MicroBatchId micro_batch) const {
    return result_.micro_batches[index(replica)][index(micro_batch)].has_run;
  }
  [[nodiscard]] const std::vector<Action>& actions_of(DeviceId device) const {
    return request_.schedule.devices[index(device)];
  }
  [[nodiscard]] bool is_last(StageId stage) const { return index(stage) + 1 == request_.schedule.stages; }
  [[nodiscard]] bool splits(const Action& action) const;
  [[nodiscard]] StagePass pass_of(DeviceThread& thread, const Action& action);
  [[nodiscard]] std::vector<std::optional<MicroBatchId>> last_gradients(const Slot& slot) const;
  [[nodiscard]] GradientReady reports_of(DeviceThread& thread, const Action& action);

  std::shared_ptr<Grid> grid_;
  PassRequest request_;
  int first_trained_;  // stage; those before it need no gradients
  PassResult result_;
  std::vector<char> splits_;                             // [stage][micro-batch]: its backward is cut into I and W
  std::vector<FlopCount> flops_;                         // [slot]
  std::vector<Mailbox<Message>> activations_;            // [slot]: into this stage, from the stage before
  std::vector<Mailbox<Message>> gradients_;              // [slot]: into this stage, from the stage after
  std::vector<Mailbox<Message>> features_;               // [slot]: what its share of the frozen layers has made
  std::vector<std::vector<PrefixShare>> prefix_shares_;  // [replica]; empty where nothing is frozen
  // [slot]: written by its own thread, or by one that works for it while it waits. One value: what is read of a slot
  // is of one moment.
  std::vector<std::atomic<Standing>> standings_;
  std::vector<std::unique_ptr<StatisticsExchange>> exchanges_;  // [device]; empty where nothing is exchanged
};

}  // namespace sluice::pipeline
