// tree_exchange: sums one device's buckets over the processes of a run in the order of core/sum_tree.h. Each process
// owns a piece of each bucket: it receives the others' sums of that piece, adds them up, and sends the result to all.
// If each process has one sum, that is as many bytes as a ring all-reduce sends.
// On CPUs the messages of all buckets are under way at the same time, and a thread adds up the pieces. With NCCL they
// are queued in the order of the buckets, as in ordered_all_reduce.h.
// With sends_bf16 all sums are bfloat16 numbers already (LocalSum::Options::rounds_to_bf16), so that sending
// them as bfloat16 loses nothing; the sums over processes are rounded too.
// Threads: ready() from any; begin_step() and wait() from one, before and after the calls of a step.
// Errors: PeerError, also if the others do not join within the communicator's limit.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "core/sum_tree.h"
#include "ddp/sync_timing.h"
#include "device/stream.h"

namespace sluice::ddp {

class TreeExchange {
 public:
  // buckets: in the order in which they are started; all lie on `device`. They receive the sums. No other operation of
  // the communicator may run during a step.
  TreeExchange(std::shared_ptr<comm::Communicator> communicator, device::Device device, std::vector<at::Tensor> buckets,
               bool sends_bf16);
  ~TreeExchange();
  TreeExchange(const TreeExchange&) = delete;
  TreeExchange& operator=(const TreeExchange&) = delete;

  // [process]: the nodes of its micro-batches, of `all` in the step.
  void begin_step(std::vector<std::vector<TreeNode>> nodes, std::int64_t all);
  // sums: one for each of this process's nodes, in order, each with the bucket's number of elements.
  void ready(int bucket, const device::Event& summed, std::vector<at::Tensor> sums);
  // Blocks until every bucket is the sum over all processes. Times are of the host.
  [[nodiscard]] std::vector<SumTimes> wait();
  // To one other process and back, in the current step.
  [[nodiscard]] std::int64_t sent_bytes(int bucket) const;

 private:
  struct Bucket {
    at::Tensor whole;
    std::vector<at::Tensor> sums;      // of this process
    std::vector<at::Tensor> received;  // [process]: the own piece of its sums, one after the other
    std::optional<comm::Exchange> first, second;
    std::vector<at::Tensor> in_flight;  // what the exchanges read or write besides
    bool is_ready = false;
    SumTimes times;
  };
  [[nodiscard]] at::Tensor piece_of(const at::Tensor& flat, int process) const;
  [[nodiscard]] at::ScalarType sent_type() const;
  void send_sums(int bucket);
  void add_up(Bucket& bucket) const;
  [[nodiscard]] comm::Exchange send_result(int bucket);
  void take_result(Bucket& bucket) const;
  void run_on_stream();
  void work();
  // Runs the next piece of work with the lock released. Returns false if no bucket is ready for it.
  bool work_once(std::unique_lock<std::mutex>& lock);
  void abort();

  std::shared_ptr<comm::Communicator> communicator_;
  device::Stream stream_;
  bool sends_bf16_;
  std::int64_t all_ = 0;
  std::vector<std::vector<TreeNode>> nodes_;
  std::vector<Bucket> buckets_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t added_ = 0, finished_ = 0;  // buckets, in order
  bool stops_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // without NCCL
};

}  // namespace sluice::ddp
