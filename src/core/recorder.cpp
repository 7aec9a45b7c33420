#include "core/recorder.h"

namespace sluice {

void Recorder::clear() {
  for (Track& track : tracks_) track.clear();
}

}  // namespace sluice
