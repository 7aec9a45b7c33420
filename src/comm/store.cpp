#include "comm/store.h"

#include <cstdint>
#include <system_error>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/concat.h"
#include "core/log.h"
#include "core/text.h"

namespace sluice::comm {

c10::intrusive_ptr<c10d::Store> open_store(const StoreAddress& address, int listener, std::chrono::milliseconds limit,
                                           std::chrono::milliseconds operation_timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(address.port);
  options.isServer = listener != kNoListener;
  options.waitWorkers = false;
  options.timeout = operation_timeout;
  if (options.isServer) options.masterListenFd = listener;
  try {
    const auto store = made_within(
        limit, [host = address.host, options] { return c10::make_intrusive<c10d::TCPStore>(host, options); });
    // A store that outlives an attempt still holds the values of that attempt.
    if (store) return c10::make_intrusive<c10d::PrefixStore>(concat("sluice/", address.attempt), *store);
  } catch (const std::system_error&) {
    throw;
  } catch (const std::exception& error) {
    log_debug("no store at ", address.host, ": ", first_line(error.what()));
  }
  return nullptr;
}

std::string text_in(c10d::Store& store, const std::string& key) {
  const std::vector<std::uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

void put_text(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

std::unique_ptr<MeetingFile> lead_to_store(c10d::Store& store, const SocketAddress& address,
                                           const std::filesystem::path& file) {
  const std::string run = draw_run();
  put_text(store, meeting_key(run), "here");
  return std::make_unique<MeetingFile>(file, address.address, address.port, run);
}

}  // namespace sluice::comm
