#include "comm/communicator.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "core/own_time.h"
#include "core/text.h"

namespace sluice::comm {
namespace {

// A backend's error names a port or nothing. The control connection finds out which process is lost.
template <typename Action>
auto as_peer_error(const std::string& what, const Action& action) {
  try {
    return action();
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    throw PeerError(what, " failed: ", first_line(error.what()));
  }
}

// Gloo's flight recorder is shared by all communicators. It adds each started operation to a map without a lock.
std::mutex start_mutex;

// Gloo's thread notes the end even if wait() comes late. NCCL's future is already complete when the work is queued.
Pending::End note_end(const c10::intrusive_ptr<c10d::Work>& work, const std::string& backend) {
  if (backend == "nccl") return nullptr;
  const auto noted = std::make_shared<std::atomic<Nanoseconds>>(0);
  work->getFuture()->addCallback([noted](c10::ivalue::Future&) { noted->store(now_ns()); });
  return noted;
}

// Returns false if `stop` is requested before the work has completed or failed. Throws if the limit is exceeded.
bool is_over_before(c10d::Work& work, const std::stop_token& stop, std::chrono::milliseconds limit) {
  struct Over {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_reached = false;
  };
  if (work.isCompleted()) return true;
  const auto over = std::make_shared<Over>();  // the work may outlive the wait
  work.getFuture()->addCallback([over](c10::ivalue::Future&) {
    const std::scoped_lock lock(over->mutex);
    over->is_reached = true;
    over->changed.notify_all();
  });
  const std::stop_callback wake(stop, [&] {
    const std::scoped_lock lock(over->mutex);
    over->changed.notify_all();
  });
  std::unique_lock lock(over->mutex);
  const auto ends = [&] { return over->is_reached || stop.stop_requested(); };
  if (!wait_own_time(over->changed, lock, limit, ends))
    throw std::runtime_error(concat("the other processes did not join within ", seconds_text(limit)));
  return over->is_reached;
}

bool is_nccl(const c10d::Backend& backend) { return backend.getBackendName() == "nccl"; }

// NCCL's wait() polls once a millisecond. This polls every 10 us, for at most 100 ms.
void poll_until_complete(c10d::Work& work, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + std::min(limit, std::chrono::milliseconds(100));
  while (!work.isCompleted() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::microseconds(10));
}

bool wait_for(c10d::Work& work, bool by_nccl, std::chrono::milliseconds limit, const std::string& what,
              const std::stop_token& stop = {}) {
  return as_peer_error(what, [&] {
    if (by_nccl) {
      poll_until_complete(work, limit);
    } else if (!is_over_before(work, stop, limit)) {
      return false;
    }
    work.wait(limit);
    return true;
  });
}

// NCCL may block here until the other processes arrive, so its communicators must not share a lock. Its flight recorder
// changes its map only in a communicator's first operation, which make_communicator() runs.
template <typename Operation>
auto start(const c10d::Backend& backend, const Operation& operation) {
  std::unique_lock lock(start_mutex, std::defer_lock);
  if (!is_nccl(backend)) lock.lock();
  return operation();
}

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

// The lists' entries of this process are left out.
Works start_exchange(c10d::Backend& backend, std::vector<at::Tensor> send, std::vector<at::Tensor> receive, int tag) {
  const auto own = static_cast<std::size_t>(backend.getRank());
  if (is_nccl(backend)) {
    send[own] = receive[own] = at::empty({0}, send[own].options());
    return {backend.alltoall(receive, send)};
  }
  Works works;
  for (std::size_t process = 0; process < send.size(); ++process) {
    const int peer = static_cast<int>(process);
    std::vector<at::Tensor> from{receive[process]}, to{send[process]};
    if (process == own) continue;
    if (from[0].numel() > 0) works.push_back(start(backend, [&] { return backend.recv(from, peer, tag); }));
    if (to[0].numel() > 0) works.push_back(start(backend, [&] { return backend.send(to, peer, tag); }));
  }
  return works;
}

}  // namespace

Communicator::Communicator(std::string name, device::Device device, c10::intrusive_ptr<c10d::Backend> backend,
                           std::chrono::milliseconds limit)
    : name_(std::move(name)), device_(device), backend_(std::move(backend)), limit_(limit) {
  constexpr std::chrono::hours kNever{24 * 30};
  if (!is_nccl(*backend_)) backend_->setTimeout(kNever);  // Gloo's own clock continues while this process is stopped
}

Communicator::~Communicator() = default;

int Communicator::rank() const { return backend_->getRank(); }
int Communicator::size() const { return backend_->getSize(); }

Pending Communicator::all_reduce(const at::Tensor& tensor, EndTime end_time) const {
  const std::string what = concat("the all-reduce of ", name_);
  return as_peer_error(what, [&] {
    std::vector<at::Tensor> tensors{tensor};
    const auto work = start(*backend_, [&] { return backend_->allreduce(tensors); });
    const bool by_nccl = is_nccl(*backend_);
    const auto wait = [work, limit = limit_, by_nccl, device = device_, what](const std::stop_token& stop) {
      if (!wait_for(*work, by_nccl, limit, what, stop)) return false;
      device::Stream::current(device).synchronize();  // on a GPU only the stream has waited so far
      return true;
    };
    // With a limit, wait() of NCCL's work polls every millisecond; synchronize() only queues a wait.
    const std::function<void()> queue = [work, what] { as_peer_error(what, [&] { work->synchronize(); }); };
    return Pending(wait, by_nccl ? queue : nullptr,
                   end_time == EndTime::kNoted ? note_end(work, backend_->getBackendName()) : nullptr);
  });
}

bool Communicator::by_nccl() const { return is_nccl(*backend_); }

Exchange Communicator::exchange(const std::vector<at::Tensor>& send, const std::vector<at::Tensor>& receive,
                                int tag) const {
  const std::string what = concat("the exchange of ", name_);
  auto works = as_peer_error(what, [&] { return start_exchange(*backend_, send, receive, tag); });
  const auto all = std::make_shared<const Works>(std::move(works));
  const auto wait = [all, what, limit = limit_, by_nccl = by_nccl()] {
    for (const auto& work : *all) {
      const bool has_ended =
          by_nccl ? wait_for(*work, true, limit, what) : as_peer_error(what, [&] { return work->wait(); });
      if (!has_ended) throw PeerError(what, " was ended, because another process failed or did not join in time");
    }
  };
  const auto queue = [all, what] {
    as_peer_error(what, [&] {
      for (const auto& work : *all) work->synchronize();
    });
  };
  const auto abort = [all] {
    for (const auto& work : *all) work->abort();
  };
  return {wait, queue, abort};
}

void Communicator::broadcast(const at::Tensor& tensor, int root) const {
  const std::string what = concat("the broadcast of ", name_);
  as_peer_error(what, [&] {
    std::vector<at::Tensor> tensors{tensor};
    const auto work = start(*backend_, [&] { return backend_->broadcast(tensors, {.rootRank = root}); });
    return wait_for(*work, is_nccl(*backend_), limit_, what);
  });
}

std::vector<at::Tensor> Communicator::gather(const at::Tensor& tensor, int root) const {
  const std::string what = concat("the gather of ", name_);
  return as_peer_error(what, [&] {
    std::vector<at::Tensor> own{tensor};
    std::vector<at::Tensor> from_all;
    std::vector<std::vector<at::Tensor>> all;  // stays empty in processes other than `root`
    if (rank() == root) {
      for (int i = 0; i < size(); ++i) from_all.push_back(at::empty_like(tensor));
      all.push_back(from_all);
    }
    const auto work = start(*backend_, [&] { return backend_->gather(all, own, {.rootRank = root}); });
    wait_for(*work, is_nccl(*backend_), limit_, what);
    return from_all;
  });
}

void Communicator::barrier() const {
  const std::string what = concat("the barrier of ", name_);
  as_peer_error(what, [&] {
    const auto work = start(*backend_, [&] { return backend_->barrier(); });
    return wait_for(*work, is_nccl(*backend_), limit_, what);
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

std::vector<std::string> gather_texts(const Communicator& communicator, const std::string& own, int root) {
  const at::Tensor sizes = at::zeros({communicator.size()}, at::kLong);
  sizes[communicator.rank()] = static_cast<std::int64_t>(own.size());
  communicator.all_reduce(sizes).wait();
  std::string padded = own;
  padded.resize(std::max<std::int64_t>(sizes.max().item<std::int64_t>(), 1));
  const at::Tensor bytes = at::from_blob(padded.data(), {static_cast<std::int64_t>(padded.size())}, at::kByte);
  std::vector<std::string> texts;
  for (const at::Tensor& text : communicator.gather(bytes, root)) {
    const auto size = sizes[static_cast<std::int64_t>(texts.size())].item<std::int64_t>();
    texts.emplace_back(reinterpret_cast<const char*>(text.const_data_ptr<std::uint8_t>()), size);
  }
  return texts;
}

}  // namespace sluice::comm
