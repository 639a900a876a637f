# BLAKE3 from its authors' C sources. Debian ships them, but no C library: librust-blake3-dev puts
# the whole crate under /usr/share/cargo/registry/blake3-VERSION. Defines the static library
# BLAKE3::blake3. Needs the languages C and ASM.
file(GLOB _blake3_hints "/usr/share/cargo/registry/blake3-*/c")
find_path(BLAKE3_SOURCE_DIR blake3_dispatch.c HINTS ${_blake3_hints})
if(BLAKE3_SOURCE_DIR)
  file(STRINGS "${BLAKE3_SOURCE_DIR}/blake3.h" _blake3_line REGEX "#define BLAKE3_VERSION_STRING ")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" BLAKE3_VERSION "${_blake3_line}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(BLAKE3 REQUIRED_VARS BLAKE3_SOURCE_DIR VERSION_VAR BLAKE3_VERSION)

if(BLAKE3_FOUND AND NOT TARGET BLAKE3::blake3)
  set(_blake3_parts blake3.c blake3_dispatch.c blake3_portable.c)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8)
    # Which of these runs is chosen at run time.
    foreach(_blake3_isa sse2 sse41 avx2 avx512)
      list(APPEND _blake3_parts blake3_${_blake3_isa}_x86-64_unix.S)
    endforeach()
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    list(APPEND _blake3_parts blake3_neon.c)
  else()
    # Portable C only; the dispatcher would otherwise ask for the vector code on 32-bit x86.
    set(_blake3_portable BLAKE3_NO_SSE2 BLAKE3_NO_SSE41 BLAKE3_NO_AVX2 BLAKE3_NO_AVX512)
  endif()
  list(TRANSFORM _blake3_parts PREPEND "${BLAKE3_SOURCE_DIR}/")
  add_library(blake3 STATIC ${_blake3_parts})
  add_library(BLAKE3::blake3 ALIAS blake3)
  target_include_directories(blake3 SYSTEM INTERFACE $<BUILD_INTERFACE:${BLAKE3_SOURCE_DIR}>)
  target_compile_options(blake3 PRIVATE -w) # Not our code.
  target_compile_definitions(blake3 PRIVATE ${_blake3_portable})
endif()
