#include "comm/communicator.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::comm {
namespace {

// The backends name ports or nothing; who is lost is found out by the control connection.
template <typename Action>
auto as_peer_error(const std::string& what, const Action& action) {
  try {
    return action();
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    throw PeerError(concat(what, " failed: ", first_line(error.what())));
  }
}

// c10d's flight recorder, one for all communicators of the process, enters what is started into a map without a lock.
std::mutex start_mutex;

// When an operation was over, however late somebody asks: Gloo's thread notes it; with NCCL an event
// on a stream of its own, which waits for the operation and for nothing else.
class EndOfWork {
 public:
  EndOfWork(const c10::intrusive_ptr<c10d::Work>& work, bool runs_on_stream, device::Device device)
      : on_host_(std::make_shared<std::atomic<Nanoseconds>>(0)) {
    if (!runs_on_stream) {
      work->getFuture()->addCallback([noted = on_host_](c10::ivalue::Future&) { noted->store(now_ns()); });
      return;
    }
    const auto stream = device::Stream::make(device);
    base_ = stream.moment();
    base_time_ = now_ns();
    const device::StreamGuard guard(stream);
    work->wait();
    on_stream_ = stream.moment();
  }

  [[nodiscard]] Nanoseconds time() const {
    if (!on_stream_.is_known()) return on_stream_.time(base_, base_time_);
    const Nanoseconds noted = on_host_->load();
    return noted != 0 ? noted : now_ns();  // wait() may return a moment before the note is there
  }

 private:
  std::shared_ptr<std::atomic<Nanoseconds>> on_host_;
  device::Moment base_, on_stream_;
  Nanoseconds base_time_ = 0;
};

template <typename Operation>
auto start(const Operation& operation) {
  const std::scoped_lock lock(start_mutex);
  return operation();
}

}  // namespace

Communicator::Communicator(std::string name, device::Device device, c10::intrusive_ptr<c10d::Backend> backend,
                           std::chrono::milliseconds limit)
    : name_(std::move(name)), device_(device), backend_(std::move(backend)), limit_(limit) {}

Communicator::~Communicator() = default;

int Communicator::rank() const { return backend_->getRank(); }
int Communicator::size() const { return backend_->getSize(); }

Pending Communicator::all_reduce(const at::Tensor& tensor) const {
  const std::string what = concat("the all-reduce of ", name_);
  return as_peer_error(what, [&] {
    std::vector<at::Tensor> tensors{tensor};
    const auto work = start([&] { return backend_->allreduce(tensors); });
    const EndOfWork end(work, backend_->getBackendName() == "nccl", device_);
    return Pending(
        [work, limit = limit_, device = device_, what] {
          as_peer_error(what, [&] { return work->wait(limit); });
          device::Stream::current(device).synchronize();  // on a GPU only the stream has waited so far
        },
        [end] { return end.time(); });
  });
}

void Communicator::broadcast(const at::Tensor& tensor, int root) const {
  const std::string what = concat("the broadcast of ", name_);
  as_peer_error(what, [&] {
    std::vector<at::Tensor> tensors{tensor};
    const auto work = start([&] { return backend_->broadcast(tensors, {.rootRank = root}); });
    return work->wait(limit_);
  });
}

void Communicator::barrier() const {
  as_peer_error(concat("the barrier of ", name_), [&] {
    const auto work = start([&] { return backend_->barrier(); });
    return work->wait(limit_);
  });
}

std::string broadcast_text(const Communicator& communicator, const std::string& text, int root) {
  const at::Tensor size = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong);
  communicator.broadcast(size, root);
  std::string result = text;
  result.resize(size.item<std::int64_t>());
  if (result.empty()) return result;
  communicator.broadcast(at::from_blob(result.data(), {static_cast<std::int64_t>(result.size())}, at::kByte), root);
  return result;
}

}  // namespace sluice::comm
