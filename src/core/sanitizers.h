// sanitizers: whether this build looks for misuse of memory at run time.
#pragma once

namespace sluice {

#if defined(__SANITIZE_ADDRESS__)  // GCC
inline constexpr bool kHasAddressSanitizer = true;
#elif defined(__has_feature)  // Clang
inline constexpr bool kHasAddressSanitizer = __has_feature(address_sanitizer);
#else
inline constexpr bool kHasAddressSanitizer = false;
#endif

}  // namespace sluice
