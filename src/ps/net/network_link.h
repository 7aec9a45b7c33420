// network_link: a worker's connection to its parameter server. A thread of its own sends, receives and shows that this
// worker lives, so that pushes leave while the next samples are read, and weights arrive meanwhile. Where the server
// does not know this worker any more (it was started again, or had given the worker up) the worker joins anew, and what
// it had begun before that counts for nothing: its samples have gone back to the server. Where other servers keep some
// of the shards, parts travel between them and this worker directly (part_link.h). Not here: what a worker does with
// its samples (train/serve/worker.h). Threads: one besides its own. Errors: ConfigError (refused, its number is taken),
// PeerError (the server does not answer, is silent for too long, or has failed), DivergedError (its push was refused),
// InterruptedError when asked to stop.
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
  std::vector<ServerAddress> others = {};  // of the later shards, in their order
  Keys keys;
  WorkerId worker{};
  std::string process_id = unique_name();  // Hello::process_id
  std::string where;                       // of this process, for messages
  std::int64_t batch = 1;                  // samples that it wants for a step
  std::int64_t slack = 0;                  // that a lease may have besides (data/ledger.h)
  comm::Agreement agreement;
  LinkCompression compression = {};
  Nanoseconds heartbeat_interval = 500'000'000;             // between two signs of life
  Nanoseconds connect_timeout = 300'000'000'000;            // until the server has answered for the first time
  Nanoseconds peer_timeout = 60'000'000'000;                // of the server afterwards
  Nanoseconds rival_timeout = 10'000'000'000;               // with another process that has this worker's number
  std::function<bool()> is_stopped = [] { return false; };  // asked in every wait
  // Welcome::constants, before the constructor returns; in another thread.
  std::function<void(const std::string&)> take_constants = [](const std::string&) {};
};

// The step that this worker is about to run is nobody's any more: it has joined anew.
struct StepIsVoid : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "the server has given these samples to others"; }
};

class NetworkLink final : public ServerLink {
 public:
  // Returns when the server has let this worker in, or has said that the run is done.
  explicit NetworkLink(LinkOptions options);
  ~NetworkLink() override;
  // It was done before this worker could take part: there is no layout, and nothing to do.
  [[nodiscard]] bool was_over() const;

  // The samples of the next step; nothing: the run is over.
  [[nodiscard]] std::optional<data::Lease> next_lease();
  // Waits for the weights of that step, and returns their version. Throws StepIsVoid.
  [[nodiscard]] std::int64_t wait_for_weights();
  // Within a step that takes long: throws StepIsVoid where it counts for nothing any more.
  void check_step();
  // What this process calls itself (Hello::process_id).
  [[nodiscard]] const std::string& process_id() const { return process_id_; }
  // Which run the server has (Welcome::run).
  [[nodiscard]] std::string run() const;
  [[nodiscard]] const Layout& layout() const override;
  // The weights of that step, once. Throws StepIsVoid.
  [[nodiscard]] std::int64_t pull(Tensors& into) override;
  // Where pushes are not compressed.
  [[nodiscard]] bool takes_spans() const override;
  void push_ahead(std::size_t shard, std::vector<ShardSpan> spans, const at::Tensor& elements) override;
  void push(Push push) override;

  // How long the last push took until the server had it; 0: none has come there yet.
  [[nodiscard]] double last_send_s() const;

  // What compressed pushes have not sent yet, by parameter, and of an earlier worker of this number.
  [[nodiscard]] PushCompressor::Named residuals() const;
  void load_residuals(const PushCompressor::Named& residuals);

  // The last thing: tells the server that this worker goes, and why.
  void leave();
  void fail(const Error& error);

 private:
  class Connection;
  std::string process_id_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace sluice::ps
