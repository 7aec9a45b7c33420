// file_locks: makes flock() of a test's program fail as on a file system without locks. Threads: any.
#pragma once

namespace sluice::train::test {

void refuse_locks(bool refuses);

}  // namespace sluice::train::test
