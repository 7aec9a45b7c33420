#include "comm/names.h"

#include <dlfcn.h>
#include <netdb.h>

#include <map>
#include <mutex>
#include <utility>

namespace sluice::comm::test {
namespace {

struct Host {
  std::vector<std::string> addresses;
  int unknown_for = 0;
  std::vector<std::string> until_then;
  int questions = 0;
};

std::mutex mutex;

std::map<std::string, Host>& hosts() {
  static std::map<std::string, Host> all;  // guarded by mutex
  return all;
}

int ask_system(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
  using Ask = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto ask = reinterpret_cast<Ask>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  return ask(node, service, hints, found);
}

}  // namespace

void set_host(const std::string& name, std::vector<std::string> addresses, int unknown_for,
              std::vector<std::string> until_then) {
  const std::scoped_lock lock(mutex);
  hosts()[name] = {std::move(addresses), unknown_for, std::move(until_then)};
}

int questions_about(const std::string& name) {
  const std::scoped_lock lock(mutex);
  return hosts().at(name).questions;
}

int ask(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
  const std::scoped_lock lock(mutex);
  const bool wants_number = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  const auto named = node != nullptr && !wants_number ? hosts().find(node) : hosts().end();
  if (named == hosts().end()) return ask_system(node, service, hints, found);
  Host& host = named->second;
  const auto& addresses = ++host.questions > host.unknown_for ? host.addresses : host.until_then;
  if (addresses.empty()) return EAI_NONAME;
  addrinfo** end = found;
  for (const std::string& address : addresses) {
    if (const int error = ask_system(address.c_str(), service, hints, end); error != 0) return error;
    while (*end != nullptr) end = &(*end)->ai_next;
  }
  return 0;
}

}  // namespace sluice::comm::test

// Replaces the system's function in the whole program.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** found) {
  return sluice::comm::test::ask(node, service, hints, found);
}
