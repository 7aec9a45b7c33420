#include "train/serve/server_events.h"

#include <string>

#include "core/concat.h"
#include "core/log.h"
#include "core/text.h"

namespace sluice::train {

ps::Over ending_of(const Error& error) { return {static_cast<std::int64_t>(error.exit_code()), error.what()}; }

Error it_was_stopped() { return InterruptedError("it was stopped"); }
Error it_has_failed() { return PeerError("it has failed; see its log"); }

void log_malformed(std::int64_t messages) {
  if (messages > 0) log_warning(counted(messages, "message"), " were not valid messages of Sluice and were dropped");
}

namespace {

const char* name_of(ps::WorkerEvent::What what) {
  switch (what) {
    case ps::WorkerEvent::What::kJoined: return "joined";
    case ps::WorkerEvent::What::kLeft: return "left";
    case ps::WorkerEvent::What::kFailed: return "failed";
    case ps::WorkerEvent::What::kLost: return "lost";
  }
  return "";
}

}  // namespace

void log_event(const ps::WorkerEvent& event) {
  const std::string text = concat("worker ", static_cast<int>(event.worker), " (", event.where, ") has ",
                                  event.what == ps::WorkerEvent::What::kLost ? "been given up" : name_of(event.what),
                                  event.why.empty() ? "" : ": ", event.why);
  const bool is_good = event.what == ps::WorkerEvent::What::kJoined || event.what == ps::WorkerEvent::What::kLeft;
  log(is_good ? LogLevel::kInfo : LogLevel::kWarning, text);
}

Events events_of(const std::vector<ps::WorkerEvent>& all, std::int64_t version) {
  Events events;
  for (const ps::WorkerEvent& event : all) {
    events.emplace_back("worker", nlohmann::ordered_json{{"step", version},
                                                         {"worker", static_cast<int>(event.worker)},
                                                         {"what", name_of(event.what)},
                                                         {"where", event.where},
                                                         {"why", event.why}});
    if (event.what == ps::WorkerEvent::What::kJoined) events.back().second["session"] = event.process_id;
  }
  return events;
}

}  // namespace sluice::train
