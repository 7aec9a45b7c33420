#include "comm/processes.h"

#include <net/if.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "comm/machine_cores.h"
#include "comm/nccl/nccl.h"
#include "comm/socket_address.h"
#include "comm/start.h"
#include "comm/store.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/own_time.h"
#include "core/text.h"

namespace sluice::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHandshake{5000};      // least time for the store to answer once a listener is found
constexpr milliseconds kReportTimeout{2000};  // how long a rank that fails by itself tries to reach the others
constexpr milliseconds kLongestLook{2000};    // longer than the wait between two attempts: this process was stopped
constexpr milliseconds kMeshing{20000};  // added to the connect timeout: all are there and make the same communicators

// Debian's /etc/hosts maps a machine's own name to an address that no other machine can reach.
void warn_of_loopback(const World& world, const std::string& host) {
  if (!is_loopback(world.address) || world.address == host || host == "localhost") return;
  log_warning("rank 0 listens on ", world.address, ", the address of ", host,
              " on this machine, which other machines cannot reach; set ", world.address_settings.host,
              " to an address that they can reach");
}

}  // namespace

template <typename Make>
auto Processes::noted(const Make& make) {
  return regrouping_.connections ? regrouping_.connections->note(make) : make();
}

Processes::Processes(World world, const Agreement& agreement, TimeLimits limits, const std::function<void()>& prepare,
                     Regrouping regrouping)
    : world_(std::move(world)), limits_(limits), regrouping_(std::move(regrouping)) {
  if (world_.is_single()) {
    prepare();
    return;
  }
  if (!world_.interface.empty() && ::if_nametoindex(world_.interface.c_str()) == 0) {
    throw ConfigError(
        concat("--if-name ", world_.interface, ": this machine has no such interface; `ip link` lists its interfaces"));
  }
  const bool hosts = world_.rank == 0 && !world_.is_hosted;
  if (hosts) listen();
  try {
    prepare();
  } catch (const std::exception& failure) {
    report_failure(first_line(failure.what()));
    throw;
  }
  if (!hosts) connect_to_rank_0();
  agree(agreement);
  if (!door_) count_neighbours();
}

Processes::~Processes() = default;

void Processes::listen() {
  if (regrouping_.meeting.publish) {
    const int listener = listen_on(world_.address, kAnyPort);
    world_.port = own_address(listener).port;
    open(listener, limits_.connect);
    return regrouping_.meeting.publish(SocketAddress{world_.address, world_.port}.to_text());
  }
  if (world_.meeting_file.empty()) {
    const std::string host = world_.address;
    const int listener = listen_on(host, world_.port, world_.address_settings, limits_.connect);
    world_.address = own_address(listener).address;
    open(listener, limits_.connect);
    warn_of_loopback(world_, host);
    return;
  }
  world_.address = world_.interface.empty() ? "127.0.0.1" : address_of_interface(world_.interface);
  const int listener = listen_on(world_.address, kAnyPort);
  world_.port = own_address(listener).port;
  open(listener, limits_.connect);
  meeting_file_ = lead_to_store(*store_, {world_.address, world_.port}, world_.meeting_file);
}

void Processes::connect_to_rank_0() {
  if (regrouping_.meeting.look_up) {
    const SocketAddress rank_0 = SocketAddress::from_text(regrouping_.meeting.look_up());
    world_.address = rank_0.address;
    world_.port = rank_0.port;
  } else if (!world_.meeting_file.empty()) {
    if (connect_by_file(limits_.connect)) return;
    const auto last = read_meeting(world_.meeting_file);
    if (last && is_out_of_reach(*last)) {
      throw ConfigError("rank 0 listens on ", last->address, " of ", last->host, " only, but rank ", world_.rank,
                        " is on another machine; give every rank --if-name NAME, the network between the machines");
    }
    throw PeerError(
        concat("rank ", world_.rank, " did not find rank 0 by the file ", world_.meeting_file.string(), " within ",
               seconds_text(limits_.connect),
               "; check that rank 0 runs with the same --init and, if it is on another machine, check --if-name"));
  }
  if (const auto tried = reach_store(limits_.connect); !tried.empty()) {
    const bool is_name = tried != std::vector{world_.address};
    throw PeerError("rank ", world_.rank, " cannot reach ", world_.is_hosted ? "the launcher" : "rank 0", " at ",
                    world_.address, ":", world_.port, is_name ? concat(" (", join(tried, ", "), ")") : "", " within ",
                    seconds_text(limits_.connect), "; check that it runs, then ", world_.address_settings.host,
                    " and firewalls");
  }
}

// Connects to the first address of rank 0's host that accepts connections, and keeps it. Else returns those tried.
std::vector<std::string> Processes::reach_store(milliseconds limit) {
  OwnLimit own_limit(limit, kLongestTry);
  const FoundListener found = find_listener(world_.address, world_.port, own_limit, world_.address_settings.host);
  if (found.address.empty()) return found.tried;
  world_.address = found.address;
  open(kNoListener, limit);
  return {};
}

// The file may belong to an earlier run until rank 0 has replaced it.
bool Processes::connect_by_file(milliseconds limit) {
  return OwnLimit(limit, kHandshake + kLongestLook).retry(kShortWait, [this] {
    const auto meeting = read_meeting(world_.meeting_file);
    return meeting && connect_to(*meeting);
  });
}

bool Processes::connect_to(const MeetingNote& meeting) {
  if (is_out_of_reach(meeting)) return false;
  world_.address = meeting.address;
  world_.port = meeting.port;
  try {
    if (!reach_store(milliseconds(0)).empty()) throw PeerError("no process listens at that address");
    if (store_->check(std::vector<std::string>{meeting_key(meeting.run)})) return true;
  } catch (const std::exception& error) {
    log_debug("no rank 0 of this run at ", meeting.address, ":", meeting.port, ": ", first_line(error.what()));
  }
  store_.reset();
  world_.address.clear();
  return false;
}

void Processes::open(int listener, milliseconds limit) {
  const milliseconds answer_limit = std::max(limit, kHandshake);
  const StoreAddress address{world_.address, world_.port, world_.attempt};
  store_ = noted([&] { return open_store(address, listener, answer_limit, limits_.connect); });
  if (!store_) {
    throw PeerError("rank ", world_.rank, ": the process that listens at ", world_.address, ":", world_.port,
                    " did not answer as ", world_.is_hosted ? "torchrun's store" : "rank 0 of Sluice", " within ",
                    seconds_text(answer_limit), "; if another program uses the port, choose another ",
                    world_.address_settings.port, "; if rank 0 hangs, start all ranks again");
  }
}

// Failures are ignored: the caller throws the original error, and the other processes may be absent.
void Processes::report_failure(const std::string& why) {
  try {
    if (!store_ && !world_.meeting_file.empty()) (void)connect_by_file(kReportTimeout);
    if (!store_ && !world_.address.empty()) (void)reach_store(kReportTimeout);
    if (store_) fail_start(*store_, world_, why);
  } catch (const std::exception& error) {
    log_debug("cannot send the failure to the other processes: ", first_line(error.what()));
  }
}

template <typename Action>
auto Processes::over_store(const Action& action) {
  try {
    return action();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw PeerError("lost rank 0 at ", world_.address, ":", world_.port, " while the run started (",
                    first_line(error.what()), "); see its log");
  }
}

void Processes::agree(const Agreement& agreement) {
  door_ = over_store([&] { return start_together(*store_, world_, agreement, limits_.connect); });
  meeting_file_.reset();  // all ranks have read it
}

void Processes::publish(const std::string& key, const std::string& text) {
  over_store([&] { put_text(*store_, key, text); });
}

std::string Processes::look_up(const std::string& key) {
  return over_store([&] { return text_in(*store_, key); });
}

void Processes::count_neighbours() {
  std::vector<MachineCores> all;
  for (int rank = 0; rank < world_.size; ++rank) all.push_back(MachineCores::from_text(look_up(cores_key(rank))));
  const MachineCores& own = all[static_cast<std::size_t>(world_.rank)];
  world_.cores = cores_of_rank(all, world_.rank);
  const bool is_counted_by_launcher = world_.local_size > 0 && !regrouping_.meeting.publish;
  world_.spans_machines =
      is_counted_by_launcher
          ? world_.local_size < world_.size
          : std::ranges::any_of(all, [&](const auto& other) { return other.machine != own.machine; });
  const LocalPlace place = place_of_rank(all, world_.rank);
  if (world_.local_rank < 0) world_.local_rank = place.rank;
  if (world_.local_size == 0) world_.local_size = place.size;
}

c10::intrusive_ptr<c10d::Backend> Processes::make_gloo(const c10::intrusive_ptr<c10d::Store>& store) {
  const auto options = c10d::ProcessGroupGloo::Options::create(limits_.operation);
  if (!device_) {
    device_ = world_.interface.empty()
                  ? c10d::ProcessGroupGloo::createDeviceForHostname(address_towards(world_.address))
                  : c10d::ProcessGroupGloo::createDeviceForInterface(world_.interface);
  }
  options->devices.push_back(device_);
  const milliseconds limit = limits_.connect + kMeshing;
  const auto made = noted([&] {
    return made_within(limit, [=, rank = world_.rank, size = world_.size] {
      return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
    });
  });
  if (!made)
    throw std::runtime_error(
        concat("no connection within ", seconds_text(limit), "; check the thread limit, ulimit -u"));
  return *made;
}

std::shared_ptr<Communicator> Processes::make_communicator(const std::string& name, device::Device device,
                                                           Collectives collectives) {
  const bool is_cuda = device.kind == device::DeviceKind::kCuda;
  if (collectives == Collectives::kNccl && !is_cuda) {
    throw ConfigError("replicas.backend = \"nccl\" cannot carry ", name, " of ", device::to_string(device),
                      "; set it to \"auto\" or \"gloo\", or device.list to GPUs");
  }
  // Communicators of one name need separate keys: a backend would read the values of an earlier one.
  const auto store = c10::make_intrusive<c10d::PrefixStore>(concat(name, "/", communicators_++), store_);
  try {
    const bool by_nccl = is_cuda && collectives != Collectives::kGloo;
    const auto backend =
        by_nccl ? nccl::make_backend(store, world_.rank, world_.size, device, limits_.operation) : make_gloo(store);
    auto communicator = std::make_shared<Communicator>(name, device, backend, limits_.operation);
    if (by_nccl) communicator->all_reduce(at::zeros({1}, device::torch_device(device))).wait();
    return communicator;
  } catch (const Error&) {
    throw;
  } catch (const std::system_error&) {  // no more threads
    throw;
  } catch (const std::exception& error) {
    throw PeerError("rank ", world_.rank, " cannot connect to the other processes for ", name, " (",
                    first_line(error.what()), "); see their logs");
  }
}

}  // namespace sluice::comm
