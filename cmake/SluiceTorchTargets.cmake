# LibTorch as interface libraries, for the build and for the installed package. Torch's own CMake package refuses to
# configure without a CUDA toolkit, so its libraries are named here directly.

# sluice_find_torch(ROOT): the folder of the torch package of Python3_EXECUTABLE; empty where it has none.
function(sluice_find_torch root)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failure)
  if(failure)
    set(found "")
  endif()
  set(${root} "${found}" PARENT_SCOPE)
endfunction()

# sluice_torch_version(VERSION ROOT): three numbers, as in 2.11.0.
function(sluice_torch_version version root)
  file(STRINGS ${root}/version.py line REGEX "^__version__ *=")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" found "${line}")
  set(${version} "${found}" PARENT_SCOPE)
endfunction()

# sluice_torch_target(NAME ROOT): of the torch package in ROOT.
function(sluice_torch_target name root)
  add_library(${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${name} SYSTEM INTERFACE ${root}/include ${root}/include/torch/csrc/api/include)
  target_link_directories(${name} INTERFACE ${root}/lib)
  target_link_options(${name} INTERFACE -Wl,-rpath,${root}/lib)
  # The wheel's libraries export parts of another libstdc++ (std::filesystem, string streams), which would replace ours:
  # std::filesystem::remove_all(path, error_code) then calls address 0. So ours comes first in the search order.
  target_link_libraries(${name} INTERFACE -Wl,--push-state,--no-as-needed,-lstdc++,--pop-state torch_cpu c10)
endfunction()

# sluice_torch_cuda_target(NAME TORCH [LIBRARY...]): its CUDA side; LIBRARY: what to link instead of torch_cuda. Requires
# find_package(CUDAToolkit).
function(sluice_torch_cuda_target name torch)
  set(libraries ${ARGN})
  if(NOT libraries)
    # Nothing refers to a symbol of torch_cuda itself: without --no-as-needed its kernels would not be loaded. One item,
    # so that CMake cannot part or merge the two ends.
    set(libraries -Wl,--push-state,--no-as-needed,-ltorch_cuda,--pop-state)
  endif()
  add_library(${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${name} SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(${name} INTERFACE ${torch} ${libraries} c10_cuda CUDA::cudart)
endfunction()
