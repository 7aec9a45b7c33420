// store: opens c10d's TCPStore, the memory that starting processes share. Threads: any. Errors: std::system_error if no
// thread can be made. text_in() and put_text() throw std::exception if the store is gone or does not answer in time.
#pragma once

#include <chrono>
#include <exception>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <c10/util/intrusive_ptr.h>

#include "comm/meeting_file.h"
#include "comm/socket_address.h"
#include "core/own_time.h"

namespace c10d {
class Store;
}

namespace sluice::comm {

inline constexpr int kNoListener = -1;

struct StoreAddress {
  std::string host;
  int port = 0;
  int attempt = 0;  // World::attempt: each has keys of its own
};

// listener: the socket on which this process serves the store; kNoListener: another one does. operation_timeout:
// of later operations. Null if the other process does not answer as a store within the limit.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> open_store(const StoreAddress& address, int listener,
                                                         std::chrono::milliseconds limit,
                                                         std::chrono::milliseconds operation_timeout);

[[nodiscard]] std::string text_in(c10d::Store& store, const std::string& key);  // waits until the key is there
void put_text(c10d::Store& store, const std::string& key, const std::string& text);

// Leads other processes by a file to the store, which this process serves at `address`. Errors: those of MeetingFile.
[[nodiscard]] std::unique_ptr<MeetingFile> lead_to_store(c10d::Store& store, const SocketAddress& address,
                                                         const std::filesystem::path& file);

// Runs `make` in a thread, which it abandons if `limit` passes. LibTorch waits forever for a silent listener, and
// inside Gloo if a thread cannot be created. `make` must own its data.
template <typename Make>
auto made_within(std::chrono::milliseconds limit, Make make) -> std::optional<decltype(make())> {
  const auto promise = std::make_shared<std::promise<decltype(make())>>();
  auto made = promise->get_future();
  std::thread([promise, make = std::move(make)] {
    try {
      promise->set_value(make());
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  const auto is_made = [&] { return made.wait_for(kShortWait) == std::future_status::ready; };
  if (!OwnLimit(limit).retry(std::chrono::milliseconds(0), is_made)) return std::nullopt;
  return made.get();
}

}  // namespace sluice::comm
