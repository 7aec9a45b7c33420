# `cmake --install`: the command, the libraries, the headers that models and data sets are written with, and a CMake
# package: find_package(Sluice) gives the target Sluice::sluice (docs/tutorial/first_own_model.md). Of LibTorch and the other libraries
# nothing is copied: the package finds them where it is used.
include(CMakePackageConfigHelpers)

set(SLUICE_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Sluice)
set(SLUICE_HEADER_DIR ${CMAKE_INSTALL_INCLUDEDIR}/sluice)

# Everything, under the name that users link.
add_library(sluice_all INTERFACE)
target_include_directories(sluice_all INTERFACE $<INSTALL_INTERFACE:${SLUICE_HEADER_DIR}>)
target_link_libraries(sluice_all INTERFACE sluice::app)
target_compile_features(sluice_all INTERFACE cxx_std_20)
set_target_properties(sluice_all PROPERTIES EXPORT_NAME sluice)
install(TARGETS sluice_all EXPORT SluiceTargets)

install(TARGETS sluice RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
foreach(room core nn data text)
  install(DIRECTORY src/${room} DESTINATION ${SLUICE_HEADER_DIR} FILES_MATCHING PATTERN "*.h")
endforeach()
install(DIRECTORY models DESTINATION ${SLUICE_HEADER_DIR} FILES_MATCHING PATTERN "*.h")
install(FILES src/app/program.h DESTINATION ${SLUICE_HEADER_DIR}/app)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/sluice)

install(EXPORT SluiceTargets NAMESPACE Sluice:: DESTINATION ${SLUICE_PACKAGE_DIR})
configure_package_config_file(cmake/SluiceConfig.cmake.in ${CMAKE_BINARY_DIR}/SluiceConfig.cmake
  INSTALL_DESTINATION ${SLUICE_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/SluiceConfigVersion.cmake COMPATIBILITY ExactVersion)
install(FILES ${CMAKE_BINARY_DIR}/SluiceConfig.cmake ${CMAKE_BINARY_DIR}/SluiceConfigVersion.cmake
  cmake/SluiceTorchTargets.cmake DESTINATION ${SLUICE_PACKAGE_DIR})
