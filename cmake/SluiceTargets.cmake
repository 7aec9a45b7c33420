# sluice_library(NAME pipeline [TORCH] [COLD] SRCS a.cpp b.cpp DEPS sluice::device ... [PRIVATE_DEPS ...])
#   one library per folder; its DEPS line is the architecture (scripts/check_includes.py holds the same table).
#   TORCH: links LibTorch and uses the shared precompiled header. COLD: sluice_compile_quickly.
# sluice_test(NAME core_rng_test SRCS rng_test.cpp DEPS sluice::core [TORCH] [LABELS ci ...] [TIMEOUT 60] [APART b.cpp]
#             [LONG 600] [SHARDS 3])
#   APART: those SRCS that stay out of the units, since other files of the test define the same names. LONG: the timeout of
#   NAME_long, labelled `long`, which runs with SLUICE_LONG_TESTS what CI leaves out (tests/support/long_tests.h).
#   SHARDS: how many processes share its tests at once (tests/support/shards.sh); for programs that mostly wait.

if(SLUICE_TESTS)
  find_package(GTest REQUIRED)
endif()
add_custom_target(torch_free_tests)  # what runs under TSan; LibTorch is not instrumented

# Several files are compiled as one unit: each unit pays once, about 4 s, for what every file that uses LibTorch pays.
# Files of one target must not define the same name, anonymous namespaces included (scripts/check_units.py).
option(SLUICE_UNITY "Compile several files as one unit" ON)
function(sluice_unite target)
  if(SLUICE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # A class may have members of types from the anonymous namespace of its own file; in a unit g++ takes it for a header.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# For code that no step waits for, such as reading options: half the time in the compiler.
function(sluice_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# A library that an installed package has, too, as Sluice::NAME (SluicePackage.cmake); those of the tests stay here.
function(sluice_export target name)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(folder MATCHES "^(tests|bench)")
    return()
  endif()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS ${target} EXPORT SluiceTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/sluice)
endfunction()

function(sluice_library)
  cmake_parse_arguments(arg "TORCH;COLD" "NAME" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target sluice_${arg_NAME})
  add_library(${target} STATIC ${arg_SRCS})
  add_library(sluice::${arg_NAME} ALIAS ${target})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src> $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
  target_link_libraries(${target} PUBLIC ${arg_DEPS} PRIVATE $<BUILD_LOCAL_INTERFACE:sluice_compiler> ${arg_PRIVATE_DEPS})
  sluice_export(${target} ${arg_NAME})
  if(arg_TORCH)
    target_link_libraries(${target} PUBLIC $<BUILD_INTERFACE:sluice_torch> $<INSTALL_INTERFACE:Sluice::torch>)
    target_precompile_headers(${target} REUSE_FROM sluice_torch_pch)
  endif()
  sluice_unite(${target})
  if(arg_COLD)
    sluice_compile_quickly(${target})
  endif()
endfunction()

function(sluice_test)
  cmake_parse_arguments(arg "TORCH" "NAME;TIMEOUT;LONG;SHARDS" "SRCS;DEPS;LABELS;APART" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(SLUICE_SANITIZE STREQUAL "thread")  # up to 20 times as slow
    math(EXPR arg_TIMEOUT "10 * ${arg_TIMEOUT}")
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS ci)
  endif()
  add_executable(${arg_NAME} ${arg_SRCS})
  sluice_unite(${arg_NAME})
  set_source_files_properties(${arg_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  sluice_compile_quickly(${arg_NAME})
  target_include_directories(${arg_NAME} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${arg_NAME} PRIVATE ${arg_DEPS} sluice_compiler GTest::gtest GTest::gmock GTest::gtest_main)
  if(arg_TORCH)
    target_link_libraries(${arg_NAME} PRIVATE sluice_torch)
    target_precompile_headers(${arg_NAME} REUSE_FROM sluice_torch_pch)
  else()
    list(APPEND arg_LABELS torch_free)
    add_dependencies(torch_free_tests ${arg_NAME})
  endif()
  # Sanitizers: an allocation that is too large fails as it does without it, instead of ending the program.
  set(environment "SLUICE_SOURCE_DIR=${CMAKE_SOURCE_DIR};XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/cache/${arg_NAME};GOMP_SPINCOUNT=3000;RES_OPTIONS=timeout:1 attempts:2;ASAN_OPTIONS=allocator_may_return_null=1;TSAN_OPTIONS=allocator_may_return_null=1 suppressions=${CMAKE_SOURCE_DIR}/tests/tsan_suppressions.txt")
  set(command ${arg_NAME})
  if(arg_SHARDS)
    set(command ${CMAKE_SOURCE_DIR}/tests/support/shards.sh ${arg_SHARDS} $<TARGET_FILE:${arg_NAME}>)
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${command})
  set_tests_properties(${arg_NAME} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${environment}")
  if(arg_LONG)
    add_test(NAME ${arg_NAME}_long COMMAND ${command})
    set_tests_properties(${arg_NAME}_long PROPERTIES LABELS long TIMEOUT ${arg_LONG}
      ENVIRONMENT "${environment};SLUICE_LONG_TESTS=1")
  endif()
endfunction()
