// slot_pieces: the recorded spans of one thread as pieces that follow one another: a span that holds others is cut
// where they begin and end. And the sections of a step in which the threads of a process all wait for each other: its
// pass through the schedule, and each round of what comes after it (norm, optimizer, weights). Pure. Not here: who
// waits for whom (step_replay.h).
#pragma once

#include <vector>

#include "core/clock.h"
#include "core/recorder.h"

namespace sluice::tune {

struct Piece {
  int span = 0;  // the innermost one that covers it
  Nanoseconds begin = 0, end = 0;
};

struct SlotPieces {
  std::vector<Piece> pieces;     // in the order of time; every span has one at least, which may be empty
  std::vector<int> first, last;  // [span]: of its pieces and those of the spans within it
  std::vector<int> outermost;    // [span]: the span that holds it and is in no other; itself
  std::vector<int> section;      // [span]: 0 its pass, 1 and on what comes after
  int sections = 1;

  // The last piece that begins at `time` or before, -1: none does.
  [[nodiscard]] int piece_at(Nanoseconds time) const;
};

[[nodiscard]] SlotPieces pieces_of(const StepSpans::Slot& slot);

// Where the slots of a process have cut their steps differently, all that follows the pass is one section.
void agree_on_sections(std::vector<SlotPieces>& slots);

}  // namespace sluice::tune
