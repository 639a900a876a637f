# Libraries that others link, into programs and shared libraries. What may be inlined is inlined all
# the same.
set(kvasir_linkable blake3 kvasir_messages kvasir_backends kvasir_runtime kvasir_embedding)
if(TARGET kvasir_engine)
  list(APPEND kvasir_linkable kvasir_engine)
endif()
set_target_properties(${kvasir_linkable} PROPERTIES POSITION_INDEPENDENT_CODE ON)
foreach(library IN LISTS kvasir_linkable)
  target_compile_options(${library} PRIVATE -fno-semantic-interposition)
endforeach()
