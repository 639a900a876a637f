# Debian's libcaf-dev ships headers and libraries, but no CMake package.
# Defines CAF::core, CAF::io, CAF::openssl for the components asked for.
find_path(CAF_INCLUDE_DIR caf/config.hpp)
if(CAF_INCLUDE_DIR)
  # "#define CAF_VERSION 1706" means 0.17.6.
  file(STRINGS "${CAF_INCLUDE_DIR}/caf/config.hpp" _caf_line REGEX "#define CAF_VERSION ")
  string(REGEX MATCH "[0-9]+" _caf_number "${_caf_line}")
  math(EXPR _caf_major "${_caf_number} / 10000")
  math(EXPR _caf_minor "${_caf_number} / 100 % 100")
  math(EXPR _caf_patch "${_caf_number} % 100")
  set(CAF_VERSION "${_caf_major}.${_caf_minor}.${_caf_patch}")
endif()
foreach(_caf_part IN LISTS CAF_FIND_COMPONENTS)
  find_library(CAF_${_caf_part}_LIBRARY caf_${_caf_part})
  if(CAF_${_caf_part}_LIBRARY)
    set(CAF_${_caf_part}_FOUND TRUE)
    if(NOT TARGET CAF::${_caf_part})
      add_library(CAF::${_caf_part} UNKNOWN IMPORTED)
      set_target_properties(CAF::${_caf_part} PROPERTIES
        IMPORTED_LOCATION "${CAF_${_caf_part}_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}")
    endif()
  endif()
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CAF REQUIRED_VARS CAF_INCLUDE_DIR VERSION_VAR CAF_VERSION HANDLE_COMPONENTS)
