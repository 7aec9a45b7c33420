#include "tune/event_graph.h"

#include "core/error.h"

namespace sluice::tune {

int EventGraph::add(double work, const WorkLabel& label) {
  nodes_.push_back({.work = work, .label = label});
  return static_cast<int>(nodes_.size()) - 1;
}

void EventGraph::wait(int node, int from, double lag, double share) {
  nodes_[node].waits_for.push_back({from, lag, share});
}

std::vector<int> EventGraph::in_order() const {
  std::vector<int> missing(nodes_.size());
  std::vector<std::vector<int>> next(nodes_.size());
  std::vector<int> order;
  for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) {
    missing[node] = static_cast<int>(nodes_[node].waits_for.size());
    if (missing[node] == 0) order.push_back(node);
    for (const Edge& edge : nodes_[node].waits_for) next[edge.from].push_back(node);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const int node : next[order[i]])
      if (--missing[node] == 0) order.push_back(node);
  }
  return order;
}

void EventGraph::run() {
  const std::vector<int> order = in_order();
  if (order.size() != nodes_.size())
    throw DataError("the trace is inconsistent: its spans wait for each other in a cycle; record it again");
  for (const int at : order) {
    Node& node = nodes_[at];
    for (int i = 0; i < static_cast<int>(node.waits_for.size()); ++i) {
      const Edge& edge = node.waits_for[i];
      const Node& from = nodes_[edge.from];
      const double ready = from.begin + edge.share * from.work + edge.lag;
      if (node.latest >= 0 && ready <= node.begin) continue;
      node.begin = ready;
      node.latest = i;
    }
  }
}

std::vector<EventGraph::Part> EventGraph::path_to(int node) const {
  std::vector<Part> parts;
  while (nodes_[node].latest >= 0) {
    const Edge& edge = nodes_[node].waits_for[nodes_[node].latest];
    const Node& from = nodes_[edge.from];
    parts.push_back({{.rank = nodes_[node].label.rank, .stage = nodes_[node].label.stage}, edge.lag});
    parts.push_back({from.label, edge.share * from.work});
    node = edge.from;
  }
  return parts;
}

}  // namespace sluice::tune
