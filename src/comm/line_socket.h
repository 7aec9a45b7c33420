// line_socket: connections that carry lines of text, all on one socket, which also says when each of them opens and
// ends.
// Not here: what the lines mean, and whom to believe: anybody may connect to a socket that listens.
// Why a raw ZeroMQ socket (ZMQ_STREAM): it tells the end of a connection in order with the lines that came over it,
// under an id that no other connection ever gets. A ROUTER socket tells ends only through a monitor beside it,
// unordered and by file descriptor, which a later connection may have again. Bytes that make no sense are here no
// more than an odd line.
// Threads: one at a time.
// Errors: ConfigError (the address is not known, not ours), PeerError (no more sockets). A connection that fails has
// ended.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::comm {

class LineSocket {
 public:
  using Connection = std::string;  // its id

  struct Event {
    enum class What { kOpened, kLine, kEnded };
    Connection connection;
    What what = What::kLine;
    std::string line;  // without its end
  };

  // A connection over which a longer line comes is closed.
  explicit LineSocket(std::size_t longest_line);
  // Closes all connections; lines still on their way get a moment to leave.
  ~LineSocket();
  LineSocket(const LineSocket&) = delete;
  LineSocket& operator=(const LineSocket&) = delete;

  // Listens on `host` and nowhere else. The port, a free one.
  [[nodiscard]] int listen(const std::string& host);
  // Connects as soon as it can: kOpened tells when. What has ended may open again, as another connection.
  void connect(const std::string& host, int port);

  // Never blocks. The line is lost when the connection has ended or its other end takes nothing for long.
  void send(const Connection& connection, std::string_view line);
  // Ends it without a further event; lines that wait for it are lost.
  void close(const Connection& connection);

  // Returns when next() may have something, `wake` (a file descriptor) can be read, or `limit` is over.
  void wait(std::chrono::nanoseconds limit, int wake);
  // What came next, if anything has.
  [[nodiscard]] std::optional<Event> next();

 private:
  struct Zmq;

  void push(const Connection& connection, std::string_view bytes);
  bool receive();
  void take(const Connection& connection, std::string_view bytes);

  std::size_t longest_line_;
  std::unique_ptr<Zmq> zmq_;
  std::map<Connection, std::string> begun_;  // of each open connection, the line that has no end yet
  std::deque<Event> events_;
};

}  // namespace sluice::comm
