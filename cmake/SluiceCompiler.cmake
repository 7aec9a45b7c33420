# Warnings and sanitizers of our own targets, as interface libraries. Third-party headers come in as SYSTEM.

add_library(sluice_compiler INTERFACE)
# Designated initializers leave members at their defaults on purpose: g++ 12 would warn about each.
target_compile_options(sluice_compiler INTERFACE -Wall -Wextra -Wnon-virtual-dtor -Woverloaded-virtual
  -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Werror>)  # clang, which builds the fuzzers, warns of other things
# g++ collects garbage from 1 GB on, which a unit hardly ever needs: 12 % less time in the compiler.
target_compile_options(sluice_compiler INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1048576>)
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
  # ccache needs this to cache files that use the precompiled header.
  target_compile_options(sluice_compiler INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()

if(SLUICE_SANITIZE)
  # With sanitizers, GCC 12 warns of uninitialized values in LibTorch's headers where there are none.
  target_compile_options(sluice_compiler INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
                                                   $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(sluice_compiler INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()

find_package(Threads REQUIRED)
target_link_libraries(sluice_compiler INTERFACE Threads::Threads)
