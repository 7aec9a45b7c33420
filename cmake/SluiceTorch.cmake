# LibTorch from the project's own .venv. Result: target sluice_torch, target sluice_torch_pch (shared precompiled header),
# SLUICE_WITH_CUDA, SLUICE_WITH_KERNELS (nvcc compiles, so that src/nn/cuda has its GPU kernels), SLUICE_TORCH_VERSION.
include(SluiceTorchTargets)

set(SLUICE_TORCH_ROOT "" CACHE PATH "The torch package directory; default: the one of Python3_EXECUTABLE")
if(NOT Python3_EXECUTABLE OR NOT EXISTS ${Python3_EXECUTABLE})
  message(FATAL_ERROR "No project-local Python at '${Python3_EXECUTABLE}': run scripts/bootstrap.sh, which makes .venv and configures")
endif()
if(NOT SLUICE_TORCH_ROOT)
  sluice_find_torch(torch_root)
  if(NOT torch_root)
    message(FATAL_ERROR "${Python3_EXECUTABLE} has no package torch: run scripts/bootstrap.sh")
  endif()
  set(SLUICE_TORCH_ROOT ${torch_root} CACHE PATH "" FORCE)
endif()

sluice_torch_target(sluice_torch ${SLUICE_TORCH_ROOT})

# sluice_torch_cuda_later(NAME TORCH ROOT): as sluice_torch_cuda_target, but programs that are linked with it load
# libtorch_cuda themselves (src/device/cuda/load_torch_cuda.cpp). The linker finds the names of its functions in an empty
# library, whose SONAME is that of a library that every program has. With -z lazy the first call looks for the function.
function(sluice_torch_cuda_later name torch root)
  set(names ${CMAKE_BINARY_DIR}/torch_cuda_names)
  execute_process(
    COMMAND ${CMAKE_NM} -D --defined-only ${root}/lib/libtorch_cuda.so
    COMMAND sed -nE "s/^[^ ]+ T (_ZNK?(2at4cuda|4c10d16ProcessGroupNCCL)[A-Za-z0-9_]*)$/extern \"C\" void \\1() {}/p"
    OUTPUT_FILE ${names}.cpp COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -shared -fPIC -nostdlib -Wl,-soname,libdl.so.2 -o ${names}.so ${names}.cpp
    COMMAND_ERROR_IS_FATAL ANY)
  add_library(sluice_load_torch_cuda OBJECT ${CMAKE_SOURCE_DIR}/src/device/cuda/load_torch_cuda.cpp)
  target_link_libraries(sluice_load_torch_cuda PRIVATE sluice_compiler)
  sluice_torch_cuda_target(${name} ${torch} $<TARGET_OBJECTS:sluice_load_torch_cuda> -Wl,-z,lazy,${names}.so)
endfunction()

# CUDA: outside src/nn/cuda host-side calls only, for which the toolkit's headers are enough; the libraries come with the
# torch package.
set(SLUICE_WITH_CUDA OFF)
set(SLUICE_WITH_KERNELS OFF)
if(NOT SLUICE_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND EXISTS ${SLUICE_TORCH_ROOT}/lib/libtorch_cuda.so)
    set(SLUICE_WITH_CUDA ON)
    sluice_torch_cuda_later(sluice_torch_cuda sluice_torch ${SLUICE_TORCH_ROOT})
    include(SluiceCuda)
  elseif(SLUICE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SLUICE_CUDA=ON, but no CUDA toolkit was found (nvcc or CUDAToolkit_ROOT) or the torch package has no CUDA libraries")
  endif()
endif()
sluice_torch_version(SLUICE_TORCH_VERSION ${SLUICE_TORCH_ROOT})
message(STATUS "Sluice: torch at ${SLUICE_TORCH_ROOT}, CUDA ${SLUICE_WITH_CUDA}, GPU kernels ${SLUICE_WITH_KERNELS}")

file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_pch.cpp CONTENT "// carries the precompiled header\n" @ONLY)
add_library(sluice_torch_pch STATIC ${CMAKE_BINARY_DIR}/torch_pch.cpp)
target_link_libraries(sluice_torch_pch PUBLIC sluice_torch sluice_compiler)
target_precompile_headers(sluice_torch_pch PRIVATE <ATen/ATen.h> <torch/csrc/autograd/custom_function.h>)
