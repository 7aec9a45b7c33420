#include "train/serve/worker_news.h"

#include <string>

#include "core/concat.h"
#include "core/log.h"

namespace sluice::train {
namespace {

const char* name_of(ps::WorkerNews::What what) {
  switch (what) {
    case ps::WorkerNews::What::kJoined: return "joined";
    case ps::WorkerNews::What::kLeft: return "left";
    case ps::WorkerNews::What::kFailed: return "failed";
    case ps::WorkerNews::What::kLost: return "lost";
  }
  return "";
}

}  // namespace

void log_news(const ps::WorkerNews& news) {
  const std::string text = concat("worker ", static_cast<int>(news.worker), " (", news.where, ") has ",
                                  news.what == ps::WorkerNews::What::kLost ? "been given up" : name_of(news.what),
                                  news.why.empty() ? "" : ": ", news.why);
  const bool is_good = news.what == ps::WorkerNews::What::kJoined || news.what == ps::WorkerNews::What::kLeft;
  log(is_good ? LogLevel::kInfo : LogLevel::kWarning, text);
}

Events events_of(const std::vector<ps::WorkerNews>& all, std::int64_t version) {
  Events events;
  for (const ps::WorkerNews& news : all) {
    events.emplace_back("worker", nlohmann::ordered_json{{"step", version},
                                                         {"worker", static_cast<int>(news.worker)},
                                                         {"what", name_of(news.what)},
                                                         {"where", news.where},
                                                         {"why", news.why}});
    if (news.what == ps::WorkerNews::What::kJoined) events.back().second["session"] = news.process_id;
  }
  return events;
}

}  // namespace sluice::train
