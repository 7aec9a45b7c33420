#include "core/failpoint.h"

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>

#include "core/error.h"

namespace sluice {
namespace {

struct Moment {
  std::string name;
  int times = 1;  // the process dies at this visit, counted from 1
};

std::optional<Moment> chosen_moment() {
  const char* const text = std::getenv(kKillAt);
  if (text == nullptr) return std::nullopt;
  const std::string_view whole = text;
  const std::size_t colon = whole.find(':');
  Moment moment{.name = std::string(whole.substr(0, colon))};
  if (colon == std::string_view::npos) return moment;
  const auto [end, error] = std::from_chars(text + colon + 1, text + whole.size(), moment.times);
  if (error != std::errc{} || end != text + whole.size() || moment.times < 1)
    throw ConfigError(kKillAt, "=", whole, ": expected NAME or NAME:TIMES");
  return moment;
}

}  // namespace

void failpoint(std::string_view name) {
  static const std::optional<Moment> moment = chosen_moment();
  if (!moment || moment->name != name) return;
  static std::atomic<int> times = 0;
  if (++times == moment->times) static_cast<void>(std::raise(SIGKILL));
}

}  // namespace sluice
