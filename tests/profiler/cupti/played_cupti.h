// played_cupti: steers the library that stands in for libcupti in tests: it has the same symbols, and plays records
// back through the buffers that its client lends, as a device's would come. Threads: one;
// played_worker_goes_on() from any.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
// As a process begins: nothing subscribed, everything succeeds.
void played_reset();
// What the next calls answer; 0: success.
void played_subscribe_answers(int result, const char* other);
void played_enable_answers(int kind, int result);
void played_timestamp_callback_answers(int result);
void played_version(unsigned version);
// One record that the next flush delivers; a copy is made. Kinds that are not enabled are left out.
void played_record(const void* record, std::size_t size);
// Flushes from a thread of its own, as CUPTI's worker does, and waits for it.
void played_flush_from_worker();
// Likewise, but returns while the client is reading the first record there, which takes until played_worker_goes_on().
void played_worker_begins();
void played_worker_goes_on();  // and waits for the worker's end
// Records that found no buffer are counted as dropped, as CUPTI does it. Of the client:
int played_enabled_kinds();
int played_subscribers();
int played_blocks_out();          // lent and not completed
std::uint64_t played_top_tag();   // of the calling thread; 0: none
std::uint64_t played_time_now();  // by the client's clock, where it registered one
}
