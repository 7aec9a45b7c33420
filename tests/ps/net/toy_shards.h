// toy_shards: the other servers of a toy run (toy.h), each in a thread of its own, which may be killed and start again
// with what its log has.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "core/error.h"
#include "ps/net/shard_server.h"
#include "ps/net/toy.h"
#include "support/files.h"

namespace sluice::ps::test {

class ToyShardServer {
 public:
  explicit ToyShardServer(std::filesystem::path folder = {},
                          const std::function<void(ShardServerOptions&)>& change = {})
      : folder_(std::move(folder)), change_(change) {
    start();
  }
  ~ToyShardServer() { kill(); }

  [[nodiscard]] ServerAddress address() const { return {"127.0.0.1", port_}; }
  // Does nothing until wake_up(). Returns when it does nothing.
  void fall_asleep() {
    is_asleep_ = false;
    must_sleep_ = true;
    while (!is_asleep_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void wake_up() { must_sleep_ = false; }
  // Without a word to anybody. What it has may still be looked at; then it goes.
  void halt() {
    must_stop_ = true;
    join();
  }
  void kill() {
    halt();
    server_.reset();
  }
  void start() {
    must_stop_ = false;
    ShardServerOptions options{.port = port_,
                               .optimizer = {.kind = "momentum", .momentum = 0.5},
                               .folder = folder_,
                               .heartbeat_interval = kHeartbeatInterval,
                               .peer_timeout = 3'000'000'000,
                               .connect_timeout = 5'000'000'000};
    if (change_) change_(options);
    server_ = std::make_unique<ShardServer>(std::move(options));
    port_ = server_->port();
    thread_ = std::thread([this] {
      try {
        while (!must_stop_ && !server_->over()) {
          is_asleep_ = must_sleep_.load();
          if (is_asleep_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          if (!is_asleep_) server_->next(20'000'000);
        }
      } catch (const Error& error) {
        failure = error.what();
      }
    });
  }
  // Until its run is over.
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  // After join().
  [[nodiscard]] const ShardServer& server() const { return *server_; }
  std::string failure;

 private:
  std::filesystem::path folder_;
  std::function<void(ShardServerOptions&)> change_;
  int port_ = 0;
  std::unique_ptr<ShardServer> server_;
  std::atomic<bool> must_stop_ = false, must_sleep_ = false, is_asleep_ = false;
  std::thread thread_;
};

// In the order of the parameters, after all have ended.
inline at::Tensor in_order(const ToyServer& lead, const std::vector<const ToyShardServer*>& others) {
  std::vector<at::Tensor> shards = lead.server().weights().tensors.shards;
  for (const ToyShardServer* other : others) {
    for (const at::Tensor& shard : other->server().keeper()->weights().shards) shards.push_back(shard);
  }
  return at::cat(from_shards(lead.server().layout(), shards));
}

}  // namespace sluice::ps::test
