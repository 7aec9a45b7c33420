// network_link: a worker's connection to its parameter server. A thread of its own sends and receives: pushes leave and
// weights arrive while the next samples are read. If the server has removed this worker or was restarted, the worker
// joins again. Its current step is then void, because the samples went back to the server.
// Threads: one besides its own. Errors: ConfigError (refused, or its number is taken), PeerError (the server is silent
// or has failed), DivergedError (its push was refused), InterruptedError (asked to stop).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/start.h"
#include "core/clock.h"
#include "core/error.h"
#include "data/ledger.h"
#include "ps/net/frame_socket.h"
#include "ps/push_compressor.h"
#include "ps/server_link.h"

namespace sluice::ps {

struct LinkOptions {
  std::string host;
  int port = 0;
  std::vector<ServerAddress> others = {};  // servers of the later shards, in order
  Keys keys;
  WorkerId worker{};
  std::string process_id = unique_name();  // Hello::process_id
  std::string where;                       // machine and process id, for logs and errors
  std::int64_t batch = 1;                  // samples per step
  std::int64_t slack = 0;                  // extra samples that a lease may have (data/ledger.h)
  comm::Agreement agreement;
  LinkCompression compression = {};
  Nanoseconds heartbeat_interval = 500'000'000;
  Nanoseconds connect_timeout = 300'000'000'000;            // until the first answer of the server
  Nanoseconds peer_timeout = 60'000'000'000;                // silence of the server afterwards
  Nanoseconds rival_timeout = 10'000'000'000;               // while another process has this worker's number
  std::function<bool()> is_stopped = [] { return false; };  // polled in every wait
  // Receives Welcome::constants in another thread, before the constructor returns.
  std::function<void(const std::string&)> take_constants = [](const std::string&) {};
};

// The worker has joined again.
struct StepIsVoid : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "the server has given these samples to others"; }
};

class NetworkLink final : public ServerLink {
 public:
  // Returns when the server has admitted this worker or the run is complete.
  explicit NetworkLink(LinkOptions options);
  ~NetworkLink() override;
  // Whether the run was complete before this worker was admitted. There is then no layout and no work.
  [[nodiscard]] bool was_over() const;

  // Returns the samples of the next step; nothing if the run is over.
  [[nodiscard]] std::optional<data::Lease> next_lease();
  // Waits for the weights of that step and returns their version. Throws StepIsVoid.
  [[nodiscard]] std::int64_t wait_for_weights();
  // For long steps: throws StepIsVoid if the step does not count any more.
  void check_step();
  [[nodiscard]] const std::string& process_id() const { return process_id_; }
  [[nodiscard]] std::string run() const;
  [[nodiscard]] const Layout& layout() const override;
  // Returns the weights of that step, once. Throws StepIsVoid.
  [[nodiscard]] std::int64_t pull(Tensors& into) override;
  [[nodiscard]] bool takes_spans() const override;
  void push_ahead(std::size_t shard, std::vector<ShardSpan> spans, const at::Tensor& elements) override;
  void push(Push push) override;

  [[nodiscard]] double last_send_s() const;  // of the last push that has arrived; 0: none

  // Residuals of compressed pushes, by parameter. load_residuals() continues those of an earlier worker of this number.
  [[nodiscard]] PushCompressor::Named residuals() const;
  void load_residuals(const PushCompressor::Named& residuals);

  // Either is the last call.
  void leave();
  void fail(const Error& error);

 private:
  class Connection;
  std::string process_id_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace sluice::ps
