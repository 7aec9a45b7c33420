# nvcc, where the toolkit has one that works with the C++ compiler. Result: SLUICE_WITH_KERNELS, sluice_cuda_objects().
# Requires find_package(CUDAToolkit). No GPU is asked for.
include(CheckLanguage)

# Machine code for A100 and H100 (and what runs theirs), and PTX that the driver compiles for what comes later.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPUs that the kernels are compiled for")
endif()
if(NOT CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
if(NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER AND CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
if(NOT DEFINED ENV{CUDACXX} AND CUDAToolkit_NVCC_EXECUTABLE)
  set(ENV{CUDACXX} ${CUDAToolkit_NVCC_EXECUTABLE})
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # the one that LibTorch has loaded
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)

check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  set(SLUICE_WITH_KERNELS ON)
elseif(SLUICE_CUDA STREQUAL "ON")
  message(FATAL_ERROR "SLUICE_CUDA=ON, but nvcc compiles nothing here; CMakeFiles/CMakeConfigureLog.yaml in the build folder says why")
else()
  message(WARNING "The CUDA toolkit's nvcc compiles nothing here: Sluice is built without its own GPU kernels")
endif()

# sluice_cuda_objects(OBJECT NAME a.cu ...): what nvcc makes of the files as one object file, to be listed in the SRCS of a
# library. As sources of a C++ library they would make CUDA a language of everything that links it, of the installed
# package's users too.
function(sluice_cuda_objects object name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE sluice_torch_cuda)
  target_compile_definitions(${name} PRIVATE SLUICE_DEVICE=__device__)
  # What is constexpr may run in kernels, too.
  target_compile_options(${name} PRIVATE --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-Werror -Werror=all-warnings)
  set(joined ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
  add_custom_command(OUTPUT ${joined} COMMAND ${CMAKE_LINKER} -r -o ${joined} $<TARGET_OBJECTS:${name}>
    DEPENDS ${name} $<TARGET_OBJECTS:${name}> COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties(${joined} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${object} ${joined} PARENT_SCOPE)
endfunction()
