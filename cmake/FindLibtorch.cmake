# libtorch's CPU part out of the PyPI `torch` wheel, as an installed Python has it. Defines
# `Libtorch::cpu`, which links libtorch_cpu and libc10 alone: TorchConfig.cmake of the wheel would
# ask for CUDA's toolkit, compile every file with its flags, and link all of it.
#
# KVASIR_TORCH_PYTHON is the interpreter that is asked where its torch lies; it does not load it.
# Nothing is cached: the environment may be made after the first run of CMake.
set(KVASIR_TORCH_PYTHON "${PROJECT_SOURCE_DIR}/build/python/bin/python" CACHE FILEPATH
  "A Python that has the torch wheel")

unset(Libtorch_ROOT_DIR)
unset(Libtorch_VERSION)
if(EXISTS "${KVASIR_TORCH_PYTHON}")
  execute_process(
    COMMAND "${KVASIR_TORCH_PYTHON}" -c
      "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE Libtorch_ROOT_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(Libtorch_ROOT_DIR AND EXISTS "${Libtorch_ROOT_DIR}/version.py")
  # "__version__ = '2.11.0+cu130'"
  file(STRINGS "${Libtorch_ROOT_DIR}/version.py" _libtorch_line REGEX "^__version__ =")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" Libtorch_VERSION "${_libtorch_line}")
endif()
find_path(Libtorch_INCLUDE_DIR ATen/core/Tensor.h
  PATHS "${Libtorch_ROOT_DIR}/include" NO_DEFAULT_PATH NO_CACHE)
find_library(Libtorch_cpu_LIBRARY torch_cpu PATHS "${Libtorch_ROOT_DIR}/lib" NO_DEFAULT_PATH NO_CACHE)
find_library(Libtorch_c10_LIBRARY c10 PATHS "${Libtorch_ROOT_DIR}/lib" NO_DEFAULT_PATH NO_CACHE)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch
  REQUIRED_VARS Libtorch_cpu_LIBRARY Libtorch_c10_LIBRARY Libtorch_INCLUDE_DIR
  VERSION_VAR Libtorch_VERSION)
if(Libtorch_FOUND AND NOT TARGET Libtorch::cpu)
  add_library(Libtorch::c10 SHARED IMPORTED)
  set_target_properties(Libtorch::c10 PROPERTIES
    IMPORTED_LOCATION "${Libtorch_c10_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Libtorch_INCLUDE_DIR}")
  # It finds its own libraries, those of the wheels beside it, by its run path.
  add_library(Libtorch::cpu SHARED IMPORTED)
  set_target_properties(Libtorch::cpu PROPERTIES
    IMPORTED_LOCATION "${Libtorch_cpu_LIBRARY}"
    INTERFACE_LINK_LIBRARIES Libtorch::c10)
endif()
