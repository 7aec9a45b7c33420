#include "ddp/tree_exchange.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "core/divided_up.h"
#include "core/error.h"
#include "core/log.h"
#include "core/own_time.h"
#include "core/text.h"
#include "device/memory.h"
#include "device/round.h"

namespace sluice::ddp {

TreeExchange::TreeExchange(std::shared_ptr<comm::Communicator> communicator, device::Device device,
                           std::vector<at::Tensor> buckets, bool sends_bf16)
    : communicator_(std::move(communicator)), stream_(device::Stream::make_beside(device)), sends_bf16_(sends_bf16) {
  for (at::Tensor& bucket : buckets) buckets_.push_back({.whole = std::move(bucket)});
  added_ = finished_ = buckets_.size();
  if (!communicator_->by_nccl()) thread_ = std::thread([this] { work(); });
}

TreeExchange::~TreeExchange() {
  {
    const std::scoped_lock lock(mutex_);
    stops_ = true;
    if (finished_ < buckets_.size()) abort();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void TreeExchange::begin_step(std::vector<std::vector<TreeNode>> nodes, std::int64_t all) {
  const std::scoped_lock lock(mutex_);
  const bool is_cut_off = finished_ < buckets_.size() && std::ranges::any_of(buckets_, &Bucket::is_ready);
  if (failure_ || is_cut_off)
    throw PeerError("the exchange of ", communicator_->name(),
                    " with the other processes was cut off in a failed step");
  nodes_ = std::move(nodes);
  all_ = all;
  added_ = finished_ = 0;
  for (Bucket& bucket : buckets_) bucket.is_ready = false;
}

at::Tensor TreeExchange::piece_of(const at::Tensor& flat, int process) const {
  constexpr std::int64_t kLine = 16;  // elements
  const std::int64_t size = divided_up(divided_up(flat.numel(), communicator_->size()), kLine) * kLine;
  const auto boundary = [&](std::int64_t p) { return std::min(p * size, flat.numel()); };
  return flat.narrow(0, boundary(process), boundary(process + 1) - boundary(process));
}

at::ScalarType TreeExchange::sent_type() const {
  return sends_bf16_ ? at::kBFloat16 : buckets_.front().whole.scalar_type();
}

void TreeExchange::ready(int bucket, const device::Event& summed, std::vector<at::Tensor> sums) {
  const std::scoped_lock lock(mutex_);
  buckets_[bucket].sums = std::move(sums);
  stream_.wait(summed);
  if (thread_.joinable()) send_sums(bucket);
  buckets_[bucket].is_ready = true;
  if (!thread_.joinable()) run_on_stream();
  changed_.notify_all();
}

void TreeExchange::send_sums(int number) {
  const device::StreamGuard guard(stream_);
  const device::MemoryScope charge(device::MemoryKind::kGradients);
  Bucket& bucket = buckets_[number];
  bucket.times.begin = now_ns();
  const std::int64_t own = piece_of(bucket.whole, communicator_->rank()).numel();
  std::vector<at::Tensor> send;
  bucket.received.resize(nodes_.size());
  for (int process = 0; process < communicator_->size(); ++process) {
    std::vector<at::Tensor> pieces;
    for (const at::Tensor& sum : bucket.sums) pieces.push_back(piece_of(sum, process).to(sent_type()));
    const auto none = [&] { return at::empty({0}, bucket.whole.options().dtype(sent_type())); };
    send.push_back(pieces.empty() ? none() : pieces.size() == 1 ? pieces.front() : at::cat(pieces));
    at::Tensor& received = bucket.received[process];
    const auto size = process == communicator_->rank() ? 0 : std::ssize(nodes_[process]) * own;
    if (!received.defined() || received.numel() != size) received = none().resize_({size});
  }
  bucket.in_flight = send;
  bucket.first = communicator_->exchange(send, bucket.received, 2 * number);
}

void TreeExchange::add_up(Bucket& bucket) const {
  const at::NoGradGuard no_grad;
  const device::StreamGuard guard(stream_);
  const auto add = [this](const TreeNode&, const at::Tensor& left, const at::Tensor& right) {
    at::Tensor sum = left.add_(right);
    if (sends_bf16_) device::round_to_bf16(sum);
    return sum;
  };
  const at::Tensor own = piece_of(bucket.whole, communicator_->rank());
  TreeSum<at::Tensor> tree({0, all_}, all_);
  for (int process = 0; process < communicator_->size(); ++process) {
    for (std::size_t node = 0; node < nodes_[process].size(); ++node) {
      const auto begin = static_cast<std::int64_t>(node) * own.numel();
      const at::Tensor sum = process == communicator_->rank()
                                 ? piece_of(bucket.sums[node], process)
                                 : bucket.received[process].narrow(0, begin, own.numel()).to(own.scalar_type());
      tree.put(nodes_[process][node], sum, add);
    }
  }
  const at::Tensor& root = tree.kept().begin()->second;
  if (root.const_data_ptr() != own.const_data_ptr()) own.copy_(root);
}

comm::Exchange TreeExchange::send_result(int number) {
  const device::StreamGuard guard(stream_);
  Bucket& bucket = buckets_[number];
  const at::Tensor own = piece_of(bucket.whole, communicator_->rank()).to(sent_type());
  std::vector<at::Tensor> receive;
  for (int process = 0; process < communicator_->size(); ++process) {
    const at::Tensor piece = piece_of(bucket.whole, process);
    receive.push_back(sends_bf16_ ? at::empty_like(piece, piece.options().dtype(at::kBFloat16)) : piece);
  }
  bucket.in_flight = receive;
  bucket.in_flight.push_back(own);
  return communicator_->exchange(std::vector<at::Tensor>(receive.size(), own), receive, 2 * number + 1);
}

void TreeExchange::take_result(Bucket& bucket) const {
  const at::NoGradGuard no_grad;
  const device::StreamGuard guard(stream_);
  for (int process = 0; sends_bf16_ && process < communicator_->size(); ++process) {
    if (process != communicator_->rank()) piece_of(bucket.whole, process).copy_(bucket.in_flight[process]);
  }
  bucket.in_flight.clear();
  bucket.sums.clear();
  bucket.times.end = now_ns();
}

// With NCCL nothing of this waits.
void TreeExchange::run_on_stream() {
  for (; added_ < buckets_.size() && buckets_[added_].is_ready; ++added_) {
    const device::StreamGuard guard(stream_);
    Bucket& bucket = buckets_[added_];
    send_sums(static_cast<int>(added_));
    bucket.first->queue_wait();
    add_up(bucket);
    bucket.second = send_result(static_cast<int>(added_));
    bucket.second->queue_wait();
    if (sends_bf16_) take_result(bucket);
  }
}

bool TreeExchange::work_once(std::unique_lock<std::mutex>& lock) {
  const std::size_t next = added_, oldest = finished_;
  const bool adds = next < buckets_.size() && buckets_[next].is_ready;
  if (!adds && oldest == next) return false;
  lock.unlock();
  Bucket& bucket = buckets_[adds ? next : oldest];
  std::optional<comm::Exchange> result;
  if (adds) {
    bucket.first->wait();
    add_up(bucket);
    result = send_result(static_cast<int>(next));
  } else {
    bucket.second->wait();
    take_result(bucket);
  }
  lock.lock();
  if (adds) bucket.second = std::move(result);
  ++(adds ? added_ : finished_);
  changed_.notify_all();
  return true;
}

void TreeExchange::work() {
  std::unique_lock lock(mutex_);
  while (!stops_) {
    try {
      if (!failure_ && work_once(lock)) continue;
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      failure_ = std::current_exception();
      changed_.notify_all();
    }
    if (!stops_) changed_.wait(lock);
  }
}

// Requires: mutex_ is locked.
void TreeExchange::abort() {
  try {
    for (const Bucket& bucket : buckets_) {
      if (bucket.first) bucket.first->abort();
      if (bucket.second) bucket.second->abort();
    }
  } catch (const std::exception& error) {
    log_warning("the exchange of ", communicator_->name(), " could not be ended: ", error.what());
  }
}

std::vector<SumTimes> TreeExchange::wait() {
  std::unique_lock lock(mutex_);
  check(std::ranges::all_of(buckets_, &Bucket::is_ready), "every bucket is ready before the step ends");
  if (thread_.joinable()) {
    const auto ends = [&] { return failure_ || finished_ == buckets_.size(); };
    if (!wait_own_time(changed_, lock, communicator_->limit(), ends)) {
      abort();
      throw PeerError("the exchange of ", communicator_->name(), " failed: the other processes did not join within ",
                      seconds_text(communicator_->limit()));
    }
    if (failure_) std::rethrow_exception(failure_);
  } else if (!buckets_.empty()) {
    buckets_.back().second->wait();  // NCCL runs operations in the order of their start
    stream_.synchronize();
    for (Bucket& bucket : buckets_) bucket.times.end = now_ns();
    finished_ = buckets_.size();
  }
  std::vector<SumTimes> times;
  for (const Bucket& bucket : buckets_) times.push_back(bucket.times);
  return times;
}

std::int64_t TreeExchange::sent_bytes(int bucket) const {
  const auto own = static_cast<std::size_t>(communicator_->rank());
  const double shares = (1.0 + static_cast<double>(nodes_[own].size())) / 2;
  const auto bytes = buckets_[bucket].whole.numel() * static_cast<std::int64_t>(at::elementSize(sent_type()));
  return static_cast<std::int64_t>(shares * static_cast<double>(bytes));
}

}  // namespace sluice::ddp
