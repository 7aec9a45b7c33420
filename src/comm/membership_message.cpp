#include "comm/membership_message.h"

#include <nlohmann/json.hpp>

namespace sluice::comm {

// Nlohmann looks these up by their names.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Group, number, members, leader, steps_done)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Proposal, coordinator, attempt, group)
NLOHMANN_JSON_SERIALIZE_ENUM(RegroupMessage::Kind, {{RegroupMessage::Kind::kLost, "lost"},
                                                    {RegroupMessage::Kind::kReady, "ready"},
                                                    {RegroupMessage::Kind::kPropose, "propose"},
                                                    {RegroupMessage::Kind::kAccept, "accept"},
                                                    {RegroupMessage::Kind::kCommit, "commit"}})
NLOHMANN_JSON_SERIALIZE_ENUM(MembershipMessage::Kind, {{MembershipMessage::Kind::kBeat, "beat"},
                                                       {MembershipMessage::Kind::kHello, "hello"},
                                                       {MembershipMessage::Kind::kWelcome, "welcome"},
                                                       {MembershipMessage::Kind::kLeave, "leave"},
                                                       {MembershipMessage::Kind::kFailed, "failed"},
                                                       {MembershipMessage::Kind::kStopped, "stopped"},
                                                       {MembershipMessage::Kind::kAcknowledged, "heard"},
                                                       {MembershipMessage::Kind::kText, "text"},
                                                       {MembershipMessage::Kind::kRegroup, "regroup"}})

namespace {

using Json = nlohmann::json;

// JSON escapes a byte as up to six: 6 KB of text, and some 30 bytes a process, stay below kLongestControlLine.
constexpr std::size_t kLongestText = 1000;

Json to_json(const RegroupMessage& message) {
  Json json{{"kind", message.kind},       {"number", message.number},    {"member", message.member},
            {"is_dead", message.is_dead}, {"steps", message.steps_done}, {"attempt", message.attempt},
            {"group", message.group}};
  if (message.accepted) json["accepted"] = *message.accepted;
  return json;
}

RegroupMessage regroup_from(const Json& json) {
  RegroupMessage message{.kind = json.at("kind"),
                         .number = json.at("number"),
                         .member = json.at("member"),
                         .is_dead = json.at("is_dead"),
                         .steps_done = json.at("steps"),
                         .attempt = json.at("attempt"),
                         .group = json.at("group").get<Group>()};
  if (json.contains("accepted")) message.accepted = json.at("accepted").get<Proposal>();
  return message;
}

}  // namespace

std::string MembershipMessage::to_line() const {
  Json line{{"say", kind}};
  if (kind == Kind::kHello) line["token"] = token;
  if (kind == Kind::kHello || kind == Kind::kWelcome) line["member"] = member;
  if (kind == Kind::kHello || kind == Kind::kWelcome) line["addresses"] = addresses;
  if (kind == Kind::kText) line["number"] = number;
  if (!text.empty()) line["text"] = text.substr(0, kLongestText);
  if (kind == Kind::kRegroup || kind == Kind::kWelcome) line["regroup"] = to_json(regroup);
  return line.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::optional<MembershipMessage> MembershipMessage::from_line(std::string_view line) {
  const Json read = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!read.is_object()) return std::nullopt;
  try {
    MembershipMessage message{.kind = read.at("say"), .text = read.value("text", "")};
    if (Json(message.kind) != read.at("say")) return std::nullopt;  // an unknown word reads as the first kind
    if (message.kind == Kind::kHello) message.token = read.at("token");
    if (message.kind == Kind::kHello || message.kind == Kind::kWelcome) {
      message.member = read.at("member");
      message.addresses = read.at("addresses").get<std::map<int, std::string>>();
    }
    if (message.kind == Kind::kText) message.number = read.at("number");
    if (message.kind == Kind::kRegroup || message.kind == Kind::kWelcome)
      message.regroup = regroup_from(read.at("regroup"));
    return message;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace sluice::comm
