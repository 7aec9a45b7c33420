#include "train/trace/rank_times.h"

#include <string>

#include "core/host.h"

namespace sluice::train {

nlohmann::ordered_json RankTimes::of_all(const comm::Communicator& all) const {
  const nlohmann::ordered_json own{
      {"rank", all.rank()}, {"host", host_name()}, {"places", report::mean_breakdown(totals_)}};
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const std::string& text : comm::gather_texts(all, own.dump(), /*root=*/0))
    ranks.push_back(nlohmann::ordered_json::parse(text));
  return {{"ranks", std::move(ranks)}};
}

}  // namespace sluice::train
