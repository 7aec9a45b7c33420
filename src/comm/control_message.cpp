#include "comm/control_message.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace sluice::comm {
namespace {

using Json = nlohmann::json;
using How = LostProcess::How;
using Kind = ControlMessage::Kind;

// JSON escapes a byte as up to six, so a line with both fields stays below kLongestControlLine.
constexpr std::size_t kLongestReason = 1000;
constexpr std::size_t kLongestHost = 256;

template <typename Enum>
struct Word {
  Enum value;
  const char* text;
};
constexpr std::array<Word<Kind>, 6> kKinds{{{Kind::kHello, "hello"},
                                            {Kind::kWelcome, "welcome"},
                                            {Kind::kHeartbeat, "beat"},
                                            {Kind::kLeave, "leave"},
                                            {Kind::kLost, "lost"},
                                            {Kind::kAcknowledged, "heard"}}};
// kGivenUp is never sent: a process sets it only for itself.
constexpr std::array<Word<How>, 4> kHows{
    {{How::kDead, "dead"}, {How::kHung, "hung"}, {How::kFailed, "failed"}, {How::kStopped, "stopped"}}};

template <typename Words>
std::string word_of(const Words& words, decltype(words[0].value) value) {
  return std::find_if(words.begin(), words.end(), [&](const auto& word) { return word.value == value; })->text;
}

template <typename Words, typename Enum>
bool read_word(const Words& words, const std::string& text, Enum& value) {
  const auto found = std::find_if(words.begin(), words.end(), [&](const auto& word) { return text == word.text; });
  if (found != words.end()) value = found->value;
  return found != words.end();
}

}  // namespace

std::string ControlMessage::to_line() const {
  Json line{{"say", word_of(kKinds, kind)}};
  if (kind == Kind::kHello) line["token"] = token;
  if (kind == Kind::kHello || kind == Kind::kLost) {
    line["rank"] = lost.rank;
    line["host"] = lost.host.substr(0, kLongestHost);
  }
  if (kind == Kind::kLost) {
    line["how"] = word_of(kHows, lost.how);
    line["reason"] = lost.reason.substr(0, kLongestReason);
  }
  return line.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::optional<ControlMessage> ControlMessage::from_line(std::string_view line) {
  const Json read = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!read.is_object()) return std::nullopt;
  ControlMessage message;
  try {
    if (!read_word(kKinds, read.at("say").get<std::string>(), message.kind)) return std::nullopt;
    if (message.kind == Kind::kHello) message.token = read.at("token").get<std::string>();
    if (message.kind == Kind::kHello || message.kind == Kind::kLost) {
      message.lost.rank = read.at("rank").get<int>();
      message.lost.host = read.at("host").get<std::string>();
    }
    if (message.kind == Kind::kLost) {
      message.lost.reason = read.at("reason").get<std::string>();
      if (!read_word(kHows, read.at("how").get<std::string>(), message.lost.how)) return std::nullopt;
    }
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  return message;
}

}  // namespace sluice::comm
