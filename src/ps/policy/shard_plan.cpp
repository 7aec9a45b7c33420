#include "ps/policy/shard_plan.h"

#include <algorithm>

#include "core/check.h"
#include "core/divided_up.h"

namespace sluice::ps {
namespace {

std::vector<Piece> pieces_of(const std::vector<std::int64_t>& sizes, std::int64_t split_bound) {
  std::vector<Piece> pieces;
  for (std::size_t parameter = 0; parameter < sizes.size(); ++parameter) {
    const std::int64_t size = sizes[parameter];
    const std::int64_t count = divided_up(size, split_bound);
    for (std::int64_t part = 0; part < count; ++part)
      pieces.push_back({static_cast<int>(parameter), size * part / count, size * (part + 1) / count});
  }
  return pieces;
}

void lay_out(Shard& shard) {
  std::ranges::sort(shard.pieces, [](const Piece& a, const Piece& b) {
    return a.parameter != b.parameter ? a.parameter < b.parameter : a.begin < b.begin;
  });
  shard.elements = 0;
  for (Piece& piece : shard.pieces) {
    piece.offset = shard.elements;
    shard.elements += piece.elements();
  }
}

}  // namespace

std::vector<Shard> plan_shards(const std::vector<std::int64_t>& sizes, int shards, std::int64_t split_bound) {
  check(shards >= 1 && split_bound >= 1, "at least one shard and a split bound of at least one element");
  std::vector<Piece> pieces = pieces_of(sizes, split_bound);
  std::ranges::stable_sort(pieces, std::ranges::greater{}, &Piece::elements);
  std::vector<Shard> plan(static_cast<std::size_t>(shards));
  for (const Piece& piece : pieces) {
    Shard& least = *std::ranges::min_element(plan, {}, &Shard::elements);
    least.pieces.push_back(piece);
    least.elements += piece.elements();
  }
  for (Shard& shard : plan) lay_out(shard);
  return plan;
}

}  // namespace sluice::ps
