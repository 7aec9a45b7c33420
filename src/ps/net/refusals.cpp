#include "ps/net/refusals.h"

#include "core/concat.h"
#include "core/log.h"

namespace sluice::ps {
namespace {

constexpr Nanoseconds kMinute = 60'000'000'000;
constexpr int kMostAMinute = 20;
constexpr std::size_t kLongest = 400;  // a stranger may send a long text

}  // namespace

std::string server_named(int number, const std::string& host, int port) {
  return concat("server ", number, " (", host, ":", port, ")");
}

std::string worker_named(WorkerId worker, const std::string& where) {
  return concat("worker ", static_cast<int>(worker), " (", where, ")");
}

std::string about_keys(const Keys& keys) {
  return keys.encrypts() ? ", and that its ps.keys are the same as here" : ", and that it has no ps.keys either";
}

void Refusals::log(const std::string& who, const std::string& why, Nanoseconds now) {
  std::string line = concat(who, " was refused: ", why);
  if (line.size() > kLongest) line = concat(line.substr(0, kLongest), " ...");
  const bool is_new_minute = minute_ == 0 || now - minute_ > kMinute;
  if (line == last_ && !is_new_minute) return;
  if (is_new_minute) {
    minute_ = now;
    logged_ = 0;
  }
  last_ = line;
  if (++logged_ <= kMostAMinute) log_warning(line);
  if (logged_ == kMostAMinute) log_warning("further refusals within this minute are not logged");
}

}  // namespace sluice::ps
