// messages: the protocol between a parameter server and its workers (docs/explanation/ps_protocol.md): JSON headers,
// some of them followed by tensors. Any message may be lost or repeated.
// A restarted server 0 may reuse the numbers of incarnations, pushes and leases. On a worker's connection to it this is
// harmless, because old messages arrive before the Hello. On connections to other servers they may arrive after the
// worker was admitted. Messages there therefore also carry the server epoch, a number of each process that is server 0.
// Every header is checked on receipt: numbers are in range, and sums of a few of them cannot overflow. Values; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "comm/start.h"
#include "ps/compression.h"
#include "ps/layout.h"
#include "ps/net/frame_socket.h"
#include "ps/net/frames.h"
#include "ps/pull_compressor.h"
#include "ps/push.h"

namespace sluice::ps {

inline constexpr std::int64_t kProtocol = 6;  // version of these messages
inline constexpr std::int64_t kNone = -1;

struct Incarnation {              // of a worker, from its admission to its removal
  std::int64_t number = 0;        // counts the admissions of the worker; 0: not admitted
  std::int64_t server_epoch = 0;  // server epoch in which it was counted

  friend bool operator==(const Incarnation&, const Incarnation&) = default;
};

// --- From a worker

struct Hello {
  std::int64_t protocol = kProtocol;
  WorkerId worker{};
  std::string process_id;  // of this process; a restarted worker has another one
  std::string where;       // for logs and errors: its machine and process id
  std::int64_t batch = 1;  // number of samples per step
  Incarnation abandons;    // the server may still know this one
  comm::Agreement agreement;
};
struct PushAhead {  // followed by the elements of the spans, one after the other
  PushKey push;
  std::int64_t lease = kNone;
  std::int64_t shard = 0;  // index among the shards of the receiving server
  std::vector<ShardSpan> spans;
  std::int64_t server_epoch = 0;  // server epoch in which the incarnation was counted; checked by shard servers
};
struct PushMade {  // followed by the shards of the receiving server, unless they were sent ahead, and the statistics
  PushRecord record;
  PushScores scores;
  PushTimes times;
  std::int64_t lease = kNone;
  bool is_ahead = false;  // the shards were sent ahead
};
struct PushSent {  // how long the acknowledged push took to send
  std::int64_t sequence = 0;
  double send_s = 0;
};
struct WorkerHeartbeat {
  std::int64_t pushed = 0;  // sequence of the last push of this incarnation
};
struct WorkerAgain {  // the last ones received in this incarnation; later ones are requested
  std::int64_t lease = kNone;
  std::int64_t version = kNone;
};
// Over answers the next two.
struct Leaving {};  // the sender ends without a failure
struct Failed {
  std::int64_t code = 0;  // ExitCode
  std::string what;
};
using FromWorker = std::variant<Hello, PushAhead, PushMade, PushSent, WorkerHeartbeat, WorkerAgain, Leaving, Failed>;

// --- From a server

struct Welcome {
  Incarnation incarnation;
  std::int64_t version = 0;
  Layout layout;
  // Sequence of the last committed push of the incarnation that the Hello abandons; 0: none is known.
  std::int64_t last_committed = 0;
  std::string run;        // id of the run, kept when it is resumed; empty: unknown
  Incarnation abandoned;  // Hello::abandons of the answered Hello
  std::string constants;  // text with further values of the model that a worker needs
};
struct Refusal {
  std::string what;
};
struct Busy {
  std::string where;  // machine and process that has this worker's number now
};
struct Who {};       // answers a message of an unknown connection, which then sends Hello
struct LeaseGiven {  // followed by the samples
  std::int64_t id = kNone;
  std::int64_t epoch = 0;
};
struct WeightsGiven {  // followed by tensors, as PushMade
  std::int64_t version = 0;
  std::int64_t sequence = 1;  // this and the next one as in PackedWeights
  bool is_whole = true;
};
struct PushAnswered {
  std::int64_t sequence = 0;
  PushAnswer answer = PushAnswer::kCommitted;
};
struct ServerHeartbeat {
  std::int64_t lease = kNone;    // the worker's current lease
  std::int64_t version = kNone;  // version of the weights of the worker's step
  Incarnation of;                // the worker's current incarnation
};
struct ServerAgain {};  // requests the worker's last push
struct Over {
  std::int64_t code = 0;  // ExitCode of the run
  std::string what;       // why it ends early; empty: it is complete
};
using FromServer = std::variant<Welcome, Refusal, Busy, Who, LeaseGiven, WeightsGiven, PushAnswered, ServerHeartbeat,
                                ServerAgain, Over>;

// A handler for std::visit from one function per kind of message.
template <typename... Functions>
struct HandlerOf : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
HandlerOf(Functions...) -> HandlerOf<Functions...>;

[[nodiscard]] bool is_sound(const PushAhead& ahead);

struct Party {
  std::string name;
  const comm::Agreement& agreement;
};
// Describes the first difference between the agreements; empty if they are equal.
[[nodiscard]] std::string difference_between(const Party& theirs, const Party& mine);

// Throws an error with the server's exit code, or returns if the run is complete.
void throw_if_failed(const Over& over);

// Texts of different layouts differ.
[[nodiscard]] std::string text_of(const Layout& layout);

[[nodiscard]] Frame header_of(const FromWorker& message);
[[nodiscard]] Frame header_of(const FromServer& message);
[[nodiscard]] std::optional<FromWorker> from_worker(const Frame& header);
[[nodiscard]] std::optional<FromServer> from_server(const Frame& header);

// Limits for messages to a server of these shards: pushes with one shard per frame. given_states: it may also receive
// the shards themselves, with that many optimizer states each.
[[nodiscard]] FrameSocket::Limits limits_for(const TensorsShape& shape, const Compression& pushed,
                                             std::optional<int> given_states = std::nullopt);
// Workers and the lead server accept messages of any size from a server that they connected to.
inline constexpr FrameSocket::Limits kFromServers{.frame_bytes = -1, .frames = 8192};

// The shards follow a header, then the statistics. Readers return nothing, or no tensors, if the shape differs.
[[nodiscard]] Frames with_tensors(Frame header, const Tensors& tensors);
[[nodiscard]] Frames with_packed(Frame header, const Packed& packed);
[[nodiscard]] std::optional<Packed> packed_after_header(const Frames& frames, const TensorsShape& shape);
[[nodiscard]] PackedWeights weights_after_header(const Frames& frames, const TensorsShape& shape, std::int64_t sequence,
                                                 bool is_whole);
[[nodiscard]] std::optional<Tensors> tensors_after_header(const Frames& frames, const TensorsShape& shape);
[[nodiscard]] Frames with_samples(Frame header, const std::vector<std::int64_t>& samples);
[[nodiscard]] std::optional<std::vector<std::int64_t>> samples_after_header(const Frames& frames);

}  // namespace sluice::ps
