#include "ps/net/worker_parts.h"

#include <algorithm>
#include <iterator>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"

namespace sluice::ps {

WorkerParts::WorkerParts(WorkerPartsOptions options) : options_(std::move(options)), parts_(options_.servers.size()) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const ServerAddress& at = options_.servers[i];
    links_.push_back(std::make_unique<PartLink>(PartLinkOptions{
        .host = at.host,
        .port = at.port,
        .keys = options_.keys,
        .process_id = options_.process_id,
        .heartbeat_interval = options_.heartbeat_interval,
        .on_weights = [this, i](const WeightsPart& header, Frames frames) { on_weights(i, header, std::move(frames)); },
        .on_heartbeat = [this, i](const PartVersion& sent) { note_heartbeat(i, sent); }}));
  }
}

void WorkerParts::begin(const Layout& layout) {
  if (layout.shards.size() % (parts_.size() + 1) != 0)
    throw ConfigError("the server has ", layout.shards.size(), " shards, which ", parts_.size() + 1,
                      " servers cannot share equally; set ps.servers to the number of servers");
  const std::scoped_lock lock(mutex_);
  layout_ = layout;
  has_begun_ = true;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    parts_[i].decoder.emplace(options_.pull, shape_of(layout_, range_of(i + 1)));
  decode();
}

void WorkerParts::on_weights(std::size_t part, const WeightsPart& header, Frames frames) {
  {
    const std::scoped_lock lock(mutex_);
    parts_[part].arrived.emplace_back(header, std::move(frames));
    if (has_begun_) decode();
  }
  options_.on_change();
}

void WorkerParts::note_heartbeat(std::size_t part, const PartVersion& sent) {
  const std::scoped_lock lock(mutex_);
  parts_[part].sent = sent;
}

// Decodes in the order of arrival, because each message may be a change to the previous one.
void WorkerParts::decode() {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    for (; !part.arrived.empty(); part.arrived.pop_front()) {
      const auto& [header, frames] = part.arrived.front();
      const PackedWeights message =
          weights_after_header(frames, shape_of(layout_, range_of(i + 1)), header.sequence, header.is_whole);
      const PartVersion version{header.incarnation, header.version};
      if (version.incarnation != part.version.incarnation) {
        part.decoder->forget();
        part.weights.reset();
      }
      if (header.first_shard != first_shard(i + 1))
        bad_ = concat(named(i + 1),
                      " does not keep the shards of its position in ps.address; give the addresses in the "
                      "same order to all");
      if (!part.decoder->follows(message)) continue;  // a message before it was lost
      part.weights = part.decoder->take(message);
      part.version = version;
      if (!part.weights) bad_ = concat(named(i + 1), " has sent weights of another layout");
    }
  }
}

bool WorkerParts::push_ahead(PushAhead ahead, const at::Tensor& elements) {
  const auto server = static_cast<std::size_t>(ahead.shard) / range_of(0).size();
  if (server == 0) return false;
  ahead.shard -= first_shard(server);
  links_[server - 1]->push_ahead(ahead, elements);
  return true;
}

void WorkerParts::forget_ahead() {
  for (const auto& link : links_) link->forget_ahead();
}

Packed WorkerParts::push(PartMade made, const Packed& all) {
  const bool is_ahead = made.is_ahead = all.shards.empty();
  for (std::size_t i = 0; i < links_.size(); ++i) {
    made.first_shard = first_shard(i + 1);
    links_[i]->push(made,
                    {is_ahead ? all.shards : part_of(all.shards, range_of(i + 1)), all.statistics.narrow(0, 0, 0)});
  }
  return {is_ahead ? all.shards : part_of(all.shards, range_of(0)), all.statistics};
}

void WorkerParts::forget() {
  for (const auto& link : links_) link->forget();
}

bool WorkerParts::has(const PartVersion& weights) const {
  const std::scoped_lock lock(mutex_);
  if (bad_) throw PeerError(*bad_);
  return has_all(weights);
}

bool WorkerParts::has_all(const PartVersion& weights) const {
  return std::ranges::all_of(parts_, [&](const Part& part) { return part.weights && part.version == weights; });
}

std::string WorkerParts::lacking(const PartVersion& weights) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!parts_[i].weights || parts_[i].version != weights) names.push_back(named(i + 1));
  }
  return join(names, ", ");
}

void WorkerParts::check_wait(const PartVersion& weights, Nanoseconds waited, Nanoseconds limit) {
  constexpr Nanoseconds kNotice = 10'000'000'000;
  if (waited <= std::min(kNotice, limit) || has(weights)) return;
  const std::scoped_lock lock(mutex_);
  if (waited > limit)
    throw PeerError(lacking(weights), " has not sent its part of the weights for ", human_duration(to_s(limit)),
                    "; see its log, and check its ps.address", about_keys(options_.keys));
  if (std::exchange(waited_for_, weights) != weights)
    log_info("waiting for ", lacking(weights), ", which has not sent its part of the weights");
}

bool WorkerParts::take(const PartVersion& weights, Tensors& into) {
  const std::scoped_lock lock(mutex_);
  if (!has_all(weights)) return false;
  for (Part& part : parts_)
    std::ranges::move(std::exchange(part.weights, std::nullopt)->shards, std::back_inserter(into.shards));
  return true;
}

// Heartbeats and weights arrive in order, so a reported version that is not there was lost.
bool WorkerParts::has_lost(const PartVersion& weights) const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::any_of(parts_, [&](const Part& part) { return part.sent == weights && part.version != weights; });
}

}  // namespace sluice::ps
