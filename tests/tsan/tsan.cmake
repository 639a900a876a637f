# With the external symbolizer a report names the handler that was inlined into CAF's templates,
# and `race_top` does not take it for one of those.
find_program(KVASIR_SYMBOLIZER NAMES llvm-symbolizer llvm-symbolizer-14)
set(tsan_options "suppressions=${CMAKE_CURRENT_LIST_DIR}/suppressions.txt")
if(KVASIR_SYMBOLIZER)
  string(APPEND tsan_options ":external_symbolizer_path=${KVASIR_SYMBOLIZER}")
endif()

foreach(label unit wire sim fault)
  if(TARGET kvasir_${label}_tests)
    set_property(TEST ${label} APPEND PROPERTY ENVIRONMENT "TSAN_OPTIONS=${tsan_options}")
  endif()
endforeach()

add_executable(planted_race "${CMAKE_CURRENT_LIST_DIR}/planted_race.cpp")
target_link_libraries(planted_race PRIVATE kvasir_actors)
foreach(runner inline worker)
  add_test(NAME tsan_planted_race_${runner} COMMAND planted_race planted ${runner})
  set_tests_properties(tsan_planted_race_${runner} PROPERTIES
    PASS_REGULAR_EXPRESSION "SUMMARY: ThreadSanitizer: data race [^\n]*planted_race.cpp:[0-9]+"
    LABELS slow TIMEOUT 120 ENVIRONMENT "TSAN_OPTIONS=${tsan_options}")
  add_test(NAME tsan_ordered_${runner} COMMAND planted_race ordered ${runner})
  set_tests_properties(tsan_ordered_${runner} PROPERTIES
    LABELS slow TIMEOUT 120 ENVIRONMENT "TSAN_OPTIONS=${tsan_options}")
endforeach()
