#include "comm/link_rates.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace sluice::comm {
namespace {

constexpr std::int64_t kProbeBytes = 1 << 20;

Nanoseconds time_exchange(const Communicator& communicator, int peer) {
  std::vector<at::Tensor> send(communicator.size(), at::empty({0}, at::kByte)), receive = send;
  send[peer] = at::zeros({kProbeBytes}, at::kByte);
  receive[peer] = at::empty({kProbeBytes}, at::kByte);
  const Nanoseconds begin = now_ns();
  communicator.exchange(send, receive, /*tag=*/0).wait();
  return now_ns() - begin;
}

}  // namespace

std::vector<LinkRate> measure_link_rates(const Communicator& communicator) {
  std::vector<LinkRate> rates;
  for (int from = 0; from < communicator.size(); ++from)
    for (int to = from + 1; to < communicator.size(); ++to) rates.push_back({.from = from, .to = to});
  const at::Tensor times = at::zeros({std::ssize(rates)}, at::kLong);
  auto* const time = times.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < rates.size(); ++i) {
    communicator.barrier();
    if (communicator.rank() == rates[i].from) time[i] = time_exchange(communicator, rates[i].to);
    if (communicator.rank() == rates[i].to) static_cast<void>(time_exchange(communicator, rates[i].from));
  }
  communicator.all_reduce(times).wait();
  for (std::size_t i = 0; i < rates.size(); ++i) rates[i].bytes_per_s = per_second(kProbeBytes, time[i]);
  std::ranges::stable_sort(rates, {}, &LinkRate::bytes_per_s);
  return rates;
}

}  // namespace sluice::comm
