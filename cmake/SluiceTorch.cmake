# sluice_torch: LibTorch from the project's own .venv, as an imported interface of headers and libraries.
# Torch's own CMake package refuses to configure without a CUDA toolkit, so its libraries are named here directly.
# Result: target sluice_torch, target sluice_torch_pch (shared precompiled header), SLUICE_WITH_CUDA.

set(SLUICE_TORCH_ROOT "" CACHE PATH "The torch package directory; default: the one of Python3_EXECUTABLE")
if(NOT Python3_EXECUTABLE OR NOT EXISTS ${Python3_EXECUTABLE})
  message(FATAL_ERROR "No project-local Python at '${Python3_EXECUTABLE}': run scripts/bootstrap.sh, which makes .venv and configures")
endif()
if(NOT SLUICE_TORCH_ROOT)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE torch_root OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(SLUICE_TORCH_ROOT ${torch_root} CACHE PATH "" FORCE)
endif()

add_library(sluice_torch INTERFACE)
target_include_directories(sluice_torch SYSTEM INTERFACE
  ${SLUICE_TORCH_ROOT}/include ${SLUICE_TORCH_ROOT}/include/torch/csrc/api/include)
target_link_directories(sluice_torch INTERFACE ${SLUICE_TORCH_ROOT}/lib)
target_link_options(sluice_torch INTERFACE -Wl,-rpath,${SLUICE_TORCH_ROOT}/lib)
# The wheel's libraries export parts of another libstdc++ (std::filesystem, string streams), which would replace ours:
# std::filesystem::remove_all(path, error_code) then calls address 0. So ours comes first in the search order.
target_link_libraries(sluice_torch INTERFACE -Wl,--push-state,--no-as-needed,-lstdc++,--pop-state torch torch_cpu c10)

# CUDA: host-side calls only, so the toolkit's headers are enough to compile; the libraries come with the torch package.
set(SLUICE_WITH_CUDA OFF)
if(NOT SLUICE_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND EXISTS ${SLUICE_TORCH_ROOT}/lib/libtorch_cuda.so)
    set(SLUICE_WITH_CUDA ON)
    add_library(sluice_torch_cuda INTERFACE)
    target_include_directories(sluice_torch_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
    # Nothing refers to a symbol of torch_cuda itself: without --no-as-needed its kernels would not be loaded. One item, so
    # that CMake cannot part or merge the two ends.
    target_link_libraries(sluice_torch_cuda INTERFACE sluice_torch
      -Wl,--push-state,--no-as-needed,-ltorch_cuda,-lc10_cuda,--pop-state CUDA::cudart)
  elseif(SLUICE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SLUICE_CUDA=ON, but no CUDA toolkit was found (nvcc or CUDAToolkit_ROOT) or the torch package has no CUDA libraries")
  endif()
endif()
message(STATUS "Sluice: torch at ${SLUICE_TORCH_ROOT}, CUDA ${SLUICE_WITH_CUDA}")

file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_pch.cpp CONTENT "// carries the precompiled header\n" @ONLY)
add_library(sluice_torch_pch STATIC ${CMAKE_BINARY_DIR}/torch_pch.cpp)
target_link_libraries(sluice_torch_pch PUBLIC sluice_torch sluice_compiler)
target_precompile_headers(sluice_torch_pch PRIVATE <ATen/ATen.h> <torch/csrc/autograd/custom_function.h>)
