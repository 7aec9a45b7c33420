// messages: what a parameter server and its workers say to each other: a header of JSON, and with some of them tensors.
//
//   worker                                   server
//   Hello (again and again)            ->
//                                      <-    Welcome, or Refusal, or Busy
//                                      <-    LeaseGiven, and WeightsGiven once the worker may begin
//   PushAhead, while backward runs     ->
//   PushMade                           ->
//                                      <-    PushAnswered, the next LeaseGiven, WeightsGiven ...
//   PushSent: how long that took       ->
//   Leaving, or Failed                 ->
//                                      <-    Over: the run is
//
// Connections break and servers restart, and then messages are lost without a word. So both sides say now and then, in
// a Heartbeat, what they have sent last; whoever misses it asks for it by Again, and what comes twice counts once. A
// server that does not know a worker answers Who, and the worker says Hello.
//
// A server 0 that was started again may count incarnations, pushes and leases as its predecessor did. On a worker's
// connection to it that does no harm: what was under way there comes before the Hello. On those to other servers it may
// come after that worker was let in. So what is said there has the server epoch, too: a number of each process that is
// server 0.
//
// A Hello that comes twice is one request: it names the incarnation that it abandons, and if the server has the worker
// in another one already it says the same Welcome again. Which incarnation that is, is in each of its heartbeats.
//
// Every header is checked: a message with a field that is missing, of another kind or out of range is none. Whoever
// reads one need not fear that a number is negative, or that sums of a few of them overflow.
// Values; pure.
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

inline constexpr std::int64_t kProtocol = 5;  // of these messages
inline constexpr std::int64_t kNone = -1;

// From when a server lets a worker in until it gives it up. 0: none.
struct WorkerIncarnation {
  std::int64_t incarnation = 0;
  std::int64_t server_epoch = 0;  // in which that was counted

  friend bool operator==(const WorkerIncarnation&, const WorkerIncarnation&) = default;
};

// --- From a worker.

struct Hello {
  std::int64_t protocol = kProtocol;
  WorkerId worker{};
  std::string process_id;      // of this process; another one of the same worker has another
  std::string where;           // for messages: its machine and number of process
  std::int64_t batch = 1;      // samples that it wants for a step
  WorkerIncarnation abandons;  // which the server may know still
  comm::Agreement agreement;
};
// Elements of the push that its worker will make next.
struct PushAhead {
  PushKey push;
  std::int64_t lease = kNone;  // of the step that it is of
  std::int64_t shard = 0;      // among those of the server that it is sent to
  std::vector<ShardSpan> spans;
  std::int64_t server_epoch = 0;  // in which that incarnation was counted; servers of shards look at it
  // Tensor: the elements of the spans, one after the other.
};
struct PushMade {
  PushRecord record;
  PushScores scores;
  PushTimes times;
  std::int64_t lease = kNone;
  bool is_ahead = false;  // its shards are
  // Tensors: the shards of the server that it is sent to unless they are ahead, then the statistics.
};
struct PushSent {
  std::int64_t sequence = 0;
  double send_s = 0;
};
struct WorkerHeartbeat {
  std::int64_t pushed = 0;  // sequence of the last push of this incarnation
};
struct WorkerAgain {  // what it has of this incarnation; the rest is to come again
  std::int64_t lease = kNone;
  std::int64_t version = kNone;
};
struct Leaving {};
struct Failed {
  std::int64_t code = 0;  // ExitCode
  std::string what;
};
using FromWorker = std::variant<Hello, PushAhead, PushMade, PushSent, WorkerHeartbeat, WorkerAgain, Leaving, Failed>;

// --- From a server.

struct Welcome {
  std::int64_t incarnation = 0;
  std::int64_t version = 0;  // of the weights there are
  Layout layout;
  // Sequence of the last push that counts of the incarnation that its Hello abandons; 0: none is known.
  std::int64_t last_committed = 0;
  std::string run;                // which run this is, also where it goes on later; empty: not known
  std::int64_t server_epoch = 0;  // of this server; as an incarnation it is nobody else's
  WorkerIncarnation abandoned;    // as its Hello has it
  std::string constants;          // what a worker needs to know of the model besides; a text of whoever runs both
};
struct Refusal {
  std::string what;
};
struct Busy {
  std::string where;  // of the process that has this worker's number now
};
struct Who {};
struct LeaseGiven {
  std::int64_t id = kNone;
  std::int64_t epoch = 0;
  // Tensor: the samples.
};
struct WeightsGiven {
  std::int64_t version = 0;
  std::int64_t sequence = 1;  // these two as PackedWeights has them
  bool is_whole = true;
  // Tensors: as PushMade.
};
struct PushAnswered {
  std::int64_t sequence = 0;
  PushAnswer answer = PushAnswer::kCommitted;
};
struct ServerHeartbeat {
  std::int64_t lease = kNone;    // that the worker should have
  std::int64_t version = kNone;  // of the weights with which it should have begun
  WorkerIncarnation of;          // in which the server has it
};
struct ServerAgain {};  // the push that this worker has made
struct Over {
  std::int64_t code = 0;  // ExitCode with which the run ends
  std::string what;       // why it ends early; empty: it is done
};
using FromServer = std::variant<Welcome, Refusal, Busy, Who, LeaseGiven, WeightsGiven, PushAnswered, ServerHeartbeat,
                                ServerAgain, Over>;

// Whether one that comes from elsewhere can be, of some push.
[[nodiscard]] bool is_sound(const PushAhead& ahead);

// What the first has otherwise than the second, in words; empty: they agree.
struct Party {
  std::string name;
  const comm::Agreement& agreement;
};
[[nodiscard]] std::string difference_between(const Party& theirs, const Party& mine);

// With the server's exit code; nothing where the run is done.
void throw_if_failed(const Over& over);

// Layouts that differ have others.
[[nodiscard]] std::string text_of(const Layout& layout);

[[nodiscard]] Frame header_of(const FromWorker& message);
[[nodiscard]] Frame header_of(const FromServer& message);
[[nodiscard]] std::optional<FromWorker> from_worker(const Frame& header);
[[nodiscard]] std::optional<FromServer> from_server(const Frame& header);

// What a server takes of such shards: pushes, a shard a frame; and where it is given the shards themselves, those with
// so many states of the optimizer each.
[[nodiscard]] FrameSocket::Limits limits_for(const TensorsShape& shape, const Compression& pushed,
                                             std::optional<int> given_states = std::nullopt);
// What others take of the server that they have connected to: all.
inline constexpr FrameSocket::Limits kFromServers{.frame_bytes = -1, .frames = 8192};

// What follows a header: the shards, then the statistics; nothing where they are not of that shape.
[[nodiscard]] Frames with_tensors(Frame header, const Tensors& tensors);
[[nodiscard]] Frames with_packed(Frame header, const Packed& packed);
[[nodiscard]] std::optional<Packed> packed_after_header(const Frames& frames, const TensorsShape& shape);
// Weights as they have come; empty where they are not of that shape.
[[nodiscard]] PackedWeights weights_after_header(const Frames& frames, const TensorsShape& shape, std::int64_t sequence,
                                                 bool is_whole);
[[nodiscard]] std::optional<Tensors> tensors_after_header(const Frames& frames, const TensorsShape& shape);
[[nodiscard]] Frames with_samples(Frame header, const std::vector<std::int64_t>& samples);
[[nodiscard]] std::optional<std::vector<std::int64_t>> samples_after_header(const Frames& frames);

}  // namespace sluice::ps
