// libFuzzer target: any bytes as a message of a worker or a server. What is read can be written, and reads the same;
// what it says of sizes can be counted, and no memory is taken for it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ps/net/messages.h"

namespace {

using namespace sluice::ps;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_numbers(const FromWorker& message) {
  if (const auto* const ahead = std::get_if<PushAhead>(&message)) {
    for (const ShardSpan& span : ahead->spans) require(span.offset >= 0 && span.elements > 0);
  }
  if (const auto* const push = std::get_if<PushMade>(&message))
    require(push->record.examples >= 0 && push->record.targets + push->record.targets >= push->record.targets);
}
void check_numbers(const FromServer& message) {
  const auto* const welcome = std::get_if<Welcome>(&message);
  if (welcome == nullptr) return;
  require(welcome->incarnation.number > 0 && welcome->layout.statistics_elements() >= 0);
  for (const Shard& shard : welcome->layout.shards) {
    for (const Piece& piece : shard.pieces)
      require(piece.end <= welcome->layout.parameters.at(static_cast<std::size_t>(piece.parameter)).elements());
  }
}

template <typename Message>
void check_header(const Frame& header, std::optional<Message> (*read)(const Frame&)) {
  const auto message = read(header);
  if (!message) return;
  const Frame written = header_of(*message);
  const auto again = read(written);
  require(again.has_value() && again->index() == message->index());
  require(header_of(*again).bytes == written.bytes);
  check_numbers(*message);
}

// Frames that lie one after the other in the input: a byte says how long each is.
Frames cut(std::string_view bytes) {
  Frames frames;
  while (!bytes.empty()) {
    const std::size_t length = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    frames.push_back(frame_of(std::string(bytes.substr(0, length))));
    bytes.remove_prefix(std::min(length, bytes.size()));
  }
  return frames;
}

void check_tensors(const Frames& frames, const Layout& layout) {
  if (const auto samples = samples_after_header(frames)) require(samples->size() * 8 == frames[1].bytes.size());
  const auto tensors = tensors_after_header(frames, shape_of(layout, {0, layout.shards.size()}));
  if (!tensors) return;
  require(frames.size() == layout.shards.size() + 2 && tensors->shards.size() == layout.shards.size());
  for (std::size_t s = 0; s < layout.shards.size(); ++s)
    require(tensors->shards[s].nbytes() == frames[s + 1].bytes.size());
  require(tensors->statistics.nbytes() == frames.back().bytes.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Frame header = frame_of(std::string(bytes));
  check_header<FromWorker>(header, from_worker);
  check_header<FromServer>(header, from_server);
  static const Layout layout = make_layout({{"a", {3, 2}, {2, 1}}, {"b", {5}, {1}}}, {{"mean", 2}}, {.shards = 2});
  check_tensors(cut(bytes), layout);
  return 0;
}
