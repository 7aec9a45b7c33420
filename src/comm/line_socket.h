// line_socket: connections that carry lines of text, all on one socket. Any process may connect to a listening socket,
// so the caller has to authenticate connections. A raw ZeroMQ socket (ZMQ_STREAM) reports the end of a connection in
// order with its lines, under an id that is never reused; a ROUTER socket does neither. Threads: one at a time. Errors:
// ConfigError (an unknown address, or not ours), PeerError (no more sockets).
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
  using Connection = std::string;

  struct Event {
    enum class What { kOpened, kLine, kEnded };
    Connection connection;
    What what = What::kLine;
    std::string line;  // without the newline
  };

  explicit LineSocket(std::size_t longest_line);
  ~LineSocket();
  LineSocket(const LineSocket&) = delete;
  LineSocket& operator=(const LineSocket&) = delete;

  [[nodiscard]] int listen(const std::string& host);
  // Connects in the background, and again after an end; kOpened reports each new connection.
  void connect(const std::string& host, int port);
  // Connects in the background, once; kOpened reports this name. All calls of an object are of one kind.
  void connect_once(const std::string& host, int port, const Connection& name);

  // Never blocks. The line is lost if the connection has ended or its other end stops reading.
  void send(const Connection& connection, std::string_view line);
  // Ends the connection without a further event. Lines that are queued for it are lost.
  void close(const Connection& connection);

  // Returns if next() may have an event, `wake` (a file descriptor) is readable, or `limit` has passed.
  void wait(std::chrono::nanoseconds limit, int wake);
  [[nodiscard]] std::optional<Event> next();

 private:
  struct Zmq;

  void push(const Connection& connection, std::string_view bytes);
  bool receive();
  void take(const Connection& connection, std::string_view bytes);

  std::size_t longest_line_;
  std::unique_ptr<Zmq> zmq_;
  std::map<Connection, std::string> begun_;  // [open connection]: its incomplete last line
  std::deque<Event> events_;
};

}  // namespace sluice::comm
