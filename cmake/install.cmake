# What `cmake --install` puts where: programs (component `node`), and libraries with their headers
# and CMake package (component `embedding`).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(kvasir_static kvasir_messages kvasir_backends kvasir_runtime kvasir_embedding)
if(TARGET kvasir_engine)
  set(kvasir_torch kvasir_engine)
endif()

# They are linked into shared libraries, too; what may be inlined is inlined all the same.
foreach(library IN ITEMS blake3 kvasir_c_api LISTS kvasir_static kvasir_torch)
  set_target_properties(${library} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${library} PRIVATE -fno-semantic-interposition)
endforeach()

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

install(TARGETS kvasir kvasird RUNTIME COMPONENT node)

# Outside they are kvasir::c, kvasir::embedding, kvasir::engine, and what these need.
foreach(library IN ITEMS options c LISTS kvasir_static kvasir_torch)
  string(REGEX REPLACE "^kvasir_" "" name ${library})
  set_target_properties(kvasir_${name} PROPERTIES EXPORT_NAME ${name})
endforeach()
install(TARGETS kvasir_c EXPORT kvasir_c
  LIBRARY COMPONENT embedding INCLUDES DESTINATION include)
install(TARGETS kvasir_options blake3 ${kvasir_static} EXPORT kvasir_embedding
  ARCHIVE COMPONENT embedding)
if(kvasir_torch)
  install(TARGETS ${kvasir_torch} EXPORT kvasir_engine ARCHIVE COMPONENT embedding)
endif()

# C++ headers name each other as here: "messages/errc.hpp".
set(headers "${CMAKE_INSTALL_INCLUDEDIR}/kvasir")
install(FILES actors/embedding/kvasir.h DESTINATION "${headers}" COMPONENT embedding)
install(DIRECTORY messages backends DESTINATION "${headers}" COMPONENT embedding
  FILES_MATCHING PATTERN "*.hpp")
install(DIRECTORY actors/embedding DESTINATION "${headers}/actors" COMPONENT embedding
  FILES_MATCHING PATTERN "*.hpp" PATTERN "c_*.hpp" EXCLUDE)
get_target_property(runtime_sources kvasir_runtime SOURCES)
foreach(source IN LISTS runtime_sources ITEMS handover.cpp)
  string(REPLACE .cpp .hpp header "actors/${source}")
  if(EXISTS "${PROJECT_SOURCE_DIR}/${header}")
    install(FILES "${header}" DESTINATION "${headers}/actors" COMPONENT embedding)
  endif()
endforeach()

set(package "${CMAKE_INSTALL_LIBDIR}/cmake/kvasir")
foreach(part IN ITEMS c embedding engine)
  if(part STREQUAL "engine" AND NOT kvasir_torch)
    continue()
  endif()
  install(EXPORT kvasir_${part} FILE kvasir_${part}.cmake NAMESPACE kvasir::
    DESTINATION "${package}" COMPONENT embedding)
endforeach()
configure_package_config_file(cmake/kvasirConfig.cmake.in "${PROJECT_BINARY_DIR}/kvasirConfig.cmake"
  INSTALL_DESTINATION "${package}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/kvasirConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/kvasirConfig.cmake"
  "${PROJECT_BINARY_DIR}/kvasirConfigVersion.cmake" cmake/FindCAF.cmake cmake/FindLibtorch.cmake
  DESTINATION "${package}" COMPONENT embedding)
configure_file(cmake/kvasir.pc.in "${PROJECT_BINARY_DIR}/kvasir.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/kvasir.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT embedding)
