// slot_pieces: splits a thread's recorded spans into consecutive pieces at the begins and ends of nested spans. Finds
// the sections of a step after which the threads of a process wait for each other: the pass, then each round. Pure.
#pragma once

#include <vector>

#include "core/clock.h"
#include "core/recorder.h"

namespace sluice::tune {

struct Piece {
  int span = 0;
  Nanoseconds begin = 0, end = 0;
};

struct SlotPieces {
  std::vector<Piece> pieces;     // ascending in time; each span has at least one piece, which may be empty
  std::vector<int> first, last;  // [span]: its pieces, including those of nested spans
  std::vector<int> outermost;    // [span]: the top-level span that contains it, or itself
  std::vector<int> section;      // [span]: 0 for the pass, 1 and up for later rounds
  int sections = 1;

  [[nodiscard]] int section_of(const Piece& piece) const { return section[piece.span]; }
  // The last piece that begins at or before `time`, or -1.
  [[nodiscard]] int piece_at(Nanoseconds time) const;
};

[[nodiscard]] SlotPieces pieces_of(const StepSpans::Slot& slot);

// If the slots of a process disagree on sections, everything after the pass becomes one section.
void agree_on_sections(std::vector<SlotPieces>& slots);

}  // namespace sluice::tune
