#include "comm/processes.h"

#include <net/if.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "comm/nccl/nccl.h"
#include "comm/socket_address.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"

namespace sluice::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPoll{20};
constexpr milliseconds kFarewell{2000};  // how long rank 0 stays, so that the others can read why the start failed

// Keys of the store during the start.
constexpr auto kWorldKey = "world";      // rank 0's size and agreement, as JSON
constexpr auto kRefusalKey = "refusal";  // why the run does not start
constexpr auto kGoKey = "go";
std::string arrival_key(int rank) { return concat("arrived/", rank); }
std::string ready_key(int rank) { return concat("ready/", rank); }  // holds the cores of that process
std::string seen_key(int rank) { return concat("seen/", rank); }

std::vector<std::uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string to_text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// What differs between rank 0's world and ours; empty when nothing does.
std::string difference(const nlohmann::json& of_rank_0, const World& world, const Agreement& own) {
  if (of_rank_0.at("size") != world.size) {
    return concat("rank ", world.rank, " was started for ", counted(world.size, "process"), ", rank 0 for ",
                  of_rank_0.at("size").dump(), "; start all with the same world size");
  }
  const Agreement theirs = of_rank_0.at("agreement");
  std::set<std::string> keys;
  for (const auto& [key, value] : theirs) keys.insert(key);
  for (const auto& [key, value] : own) keys.insert(key);
  const auto value_in = [](const Agreement& agreement, const std::string& key) {
    const auto found = agreement.find(key);
    return found == agreement.end() ? std::string("nothing") : found->second;
  };
  for (const std::string& key : keys) {
    const std::string mine = value_in(own, key), other = value_in(theirs, key);
    if (mine == other) continue;
    return concat(key, " is ", mine, " in rank ", world.rank, ", but ", other, " in rank 0; make them equal");
  }
  return {};
}

// Debian's /etc/hosts gives a machine's own name an address that no other machine can reach.
void warn_of_loopback(const std::string& host) {
  const std::string address = address_of(host);
  if (!address.starts_with("127.") || address == host || host == "localhost") return;
  log_warning(concat("rank 0 listens on ", address, ", which is ", host,
                     " on this machine: ranks of other machines cannot ",
                     "come; give an address that they reach as MASTER_ADDR"));
}

// This machine and the cores of it that this process may run on.
std::string cores_of_this_process() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ::sched_getaffinity(0, sizeof cores, &cores);
  for (int core = 0; core < CPU_SETSIZE; ++core) boot += CPU_ISSET(core, &cores) ? concat(" ", core) : std::string{};
  return boot;
}

// The start of a run over rank 0's store.
class Start {
 public:
  Start(c10d::Store& store, const World& world, milliseconds limit)
      : store_(store), world_(world), limit_(limit), deadline_(steady_clock::now() + limit) {}

  void lead(const Agreement& agreement) {
    store_.set(ready_key(0), to_bytes(cores_of_this_process()));
    const nlohmann::json of_rank_0{{"size", world_.size}, {"agreement", agreement}};
    store_.set(kWorldKey, to_bytes(of_rank_0.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
    std::vector<int> missing;
    for (int rank = 1; rank < world_.size; ++rank) missing.push_back(rank);
    while (!missing.empty()) {
      std::erase_if(missing, [&](int rank) { return store_.check({ready_key(rank)}); });
      if (store_.check({kRefusalKey})) {
        const std::string why = to_text(store_.get(kRefusalKey));
        say_farewell();
        throw ConfigError(why);
      }
      if (missing.empty()) break;
      if (steady_clock::now() > deadline_) {
        const std::string why = describe_missing(missing);
        store_.set(kRefusalKey, to_bytes(why));
        say_farewell();
        throw PeerError(why);
      }
      std::this_thread::sleep_for(kPoll);
    }
    store_.set(kGoKey, to_bytes("go"));
  }

  void follow(const Agreement& agreement) {
    wait_for({kWorldKey});
    const auto of_rank_0 = nlohmann::json::parse(to_text(store_.get(kWorldKey)));
    std::string refusal = difference(of_rank_0, world_, agreement);
    if (refusal.empty() && store_.add(arrival_key(world_.rank), 1) > 1)
      refusal = concat("two processes were started as rank ", world_.rank, "; give each a rank of its own",
                       world_.is_hosted ? " (after a restart by torchrun: see docs/launch.md)" : "");
    if (!refusal.empty()) {
      store_.set(seen_key(world_.rank), to_bytes("seen"));
      store_.set(kRefusalKey, to_bytes(refusal));
      throw ConfigError(refusal);
    }
    store_.set(ready_key(world_.rank), to_bytes(cores_of_this_process()));
    deadline_ += limit_;  // rank 0 may have begun to wait later than we did
    wait_for({kGoKey, kRefusalKey});
    if (store_.check({kGoKey})) return;
    const std::string why = to_text(store_.get(kRefusalKey));
    store_.set(seen_key(world_.rank), to_bytes("seen"));
    throw PeerError(why);
  }

 private:
  void wait_for(const std::vector<std::string>& any_of) {
    while (std::ranges::none_of(any_of, [&](const std::string& key) { return store_.check({key}); })) {
      if (steady_clock::now() > deadline_) {
        throw PeerError(concat("rank 0 at ", world_.address, ":", world_.port, " did not let the run start within ",
                               seconds_text(limit_), "; see what it says"));
      }
      std::this_thread::sleep_for(kPoll);
    }
  }

  [[nodiscard]] std::string describe_missing(const std::vector<int>& missing) const {
    return concat(numbered("rank", missing), " of ", world_.size, " did not come to ", world_.address, ":", world_.port,
                  " within ", seconds_text(limit_), "; start every rank, with the same MASTER_ADDR and MASTER_PORT");
  }

  // Waits a little for the others to read the refusal before the store goes with us.
  void say_farewell() {
    const auto end = steady_clock::now() + kFarewell;
    for (int rank = 1; rank < world_.size; ++rank) {
      while (!store_.check({seen_key(rank)}) && steady_clock::now() < end) std::this_thread::sleep_for(kPoll);
    }
  }

  c10d::Store& store_;
  const World& world_;
  milliseconds limit_;
  steady_clock::time_point deadline_;
};

}  // namespace

Processes::Processes(World world, const Agreement& agreement, TimeLimits limits)
    : world_(std::move(world)), limits_(limits) {
  if (world_.is_single()) return;
  meet();
  agree(agreement);
  count_neighbours();
}

Processes::~Processes() = default;

void Processes::meet() {
  if (!world_.interface.empty() && ::if_nametoindex(world_.interface.c_str()) == 0) {
    throw ConfigError(
        concat("--if-name ", world_.interface, ": this machine has no such interface; `ip link` lists what it has"));
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(world_.port);
  options.isServer = world_.rank == 0 && !world_.is_hosted;
  options.waitWorkers = false;
  options.timeout = limits_.connect;
  if (options.isServer) {
    options.masterListenFd = listen_on(world_.address, world_.port);
    warn_of_loopback(world_.address);
  }
  try {
    const auto store = c10::make_intrusive<c10d::TCPStore>(world_.address, options);
    // A store that outlives an attempt still holds what the last one said.
    store_ = c10::make_intrusive<c10d::PrefixStore>(concat("sluice/", world_.attempt), store);
  } catch (const std::exception& error) {
    const std::string host = world_.is_hosted ? "the launcher" : "rank 0";
    throw PeerError(concat("rank ", world_.rank, " cannot reach ", host, " at ", world_.address, ":", world_.port,
                           " within ", seconds_text(limits_.connect), " (", first_line(error.what()),
                           "); check that it runs, the address, and firewalls"));
  }
}

template <typename Action>
auto Processes::over_store(const Action& action) {
  try {
    return action();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw PeerError(concat("rank 0 at ", world_.address, ":", world_.port, " went away while the run started (",
                           first_line(error.what()), "); see what it says"));
  }
}

void Processes::agree(const Agreement& agreement) {
  Start start(*store_, world_, limits_.connect);
  over_store([&] { world_.rank == 0 ? start.lead(agreement) : start.follow(agreement); });
}

void Processes::publish(const std::string& key, const std::string& text) {
  over_store([&] { store_->set(key, to_bytes(text)); });
}

std::string Processes::look_up(const std::string& key) {
  return over_store([&] { return to_text(store_->get(key)); });
}

void Processes::count_neighbours() {
  if (world_.local_size == 0) {
    const std::string own = cores_of_this_process();
    int lower = 0;
    for (int rank = 0; rank < world_.size; ++rank) {
      const bool is_neighbour = look_up(ready_key(rank)) == own;
      world_.local_size += is_neighbour ? 1 : 0;
      lower += is_neighbour && rank < world_.rank ? 1 : 0;
    }
    if (world_.local_rank < 0) world_.local_rank = lower;
  }
  world_.local_rank = std::max(world_.local_rank, 0);
}

c10::intrusive_ptr<c10d::Backend> Processes::make_gloo(const c10::intrusive_ptr<c10d::Store>& store) {
  const auto options = c10d::ProcessGroupGloo::Options::create(limits_.operation);
  if (!device_) {
    device_ = world_.interface.empty()
                  ? c10d::ProcessGroupGloo::createDeviceForHostname(address_towards(world_.address))
                  : c10d::ProcessGroupGloo::createDeviceForInterface(world_.interface);
  }
  options->devices.push_back(device_);
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, world_.rank, world_.size, options);
}

std::shared_ptr<Communicator> Processes::make_communicator(const std::string& name, device::Device device,
                                                           Collectives collectives) {
  const bool is_cuda = device.kind == device::DeviceKind::kCuda;
  if (collectives == Collectives::kNccl && !is_cuda) {
    throw ConfigError(concat("replicas.backend = \"nccl\" cannot carry ", name, " of ", device::to_string(device),
                             "; set it to \"auto\" or \"gloo\", or device.list to GPUs"));
  }
  const auto store = c10::make_intrusive<c10d::PrefixStore>(name, store_);
  try {
    const bool by_nccl = is_cuda && collectives != Collectives::kGloo;
    const auto backend =
        by_nccl ? nccl::make_backend(store, world_.rank, world_.size, limits_.operation) : make_gloo(store);
    auto communicator = std::make_shared<Communicator>(name, device, backend, limits_.operation);
    // NCCL connects in its first operation: here, where all processes make their communicators in the same order.
    if (by_nccl) communicator->all_reduce(at::zeros({1}, device::torch_device(device))).wait();
    return communicator;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw PeerError(concat("rank ", world_.rank, " cannot connect ", name, " with the other processes (",
                           first_line(error.what()), ")"));
  }
}

}  // namespace sluice::comm
