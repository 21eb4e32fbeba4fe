# di_module(NAME base SOURCES a.cc b.cc DEPS other modules PUBLIC_LIBS … PRIVATE_LIBS …)
# One static library a module. DEPS names the modules it may include and link, nothing else;
# tools/check-layers holds every #include against the same list.
function(di_module)
  cmake_parse_arguments(M "" "NAME" "SOURCES;DEPS;PUBLIC_LIBS;PRIVATE_LIBS" ${ARGN})
  set(target di_${M_NAME})
  add_library(${target} STATIC ${M_SOURCES})
  target_include_directories(${target} PUBLIC "${CMAKE_SOURCE_DIR}/src")
  list(TRANSFORM M_DEPS PREPEND di_)
  target_link_libraries(${target} PUBLIC di_options ${M_DEPS} ${M_PUBLIC_LIBS} PRIVATE ${M_PRIVATE_LIBS})
  set_property(GLOBAL APPEND PROPERTY DI_MODULES ${target})
endfunction()

# di_test(NAME base_test LABELS foundation [slow] SOURCES … LIBS di_base …)
# Tests run in the source root, so they open models/… and tests/… by relative path. Test suites with "Slow." in
# their full name (FooSlow.Bar) get the label slow too.
function(di_test)
  cmake_parse_arguments(T "" "NAME" "SOURCES;LABELS;LIBS" ${ARGN})
  add_executable(${T_NAME} ${T_SOURCES})
  target_include_directories(${T_NAME} PRIVATE "${CMAKE_SOURCE_DIR}/tests")
  target_link_libraries(${T_NAME} PRIVATE ${T_LIBS} GTest::gtest_main GTest::gmock)
  gtest_discover_tests(${T_NAME} DISCOVERY_MODE PRE_TEST WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}"
                       TEST_FILTER "-*Slow.*" TEST_LIST ${T_NAME}_quick PROPERTIES TIMEOUT 900)
  gtest_discover_tests(${T_NAME} DISCOVERY_MODE PRE_TEST WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}"
                       TEST_FILTER "*Slow.*" TEST_LIST ${T_NAME}_slow PROPERTIES TIMEOUT 3600)
  # Discovery cannot carry a list of labels, so they are set behind it.
  set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${T_NAME}_labels.cmake")
  file(WRITE "${labels_file}"
    "foreach(test IN LISTS ${T_NAME}_quick)\n"
    "  set_tests_properties(\"\${test}\" PROPERTIES LABELS \"${T_LABELS}\")\nendforeach()\n"
    "foreach(test IN LISTS ${T_NAME}_slow)\n"
    "  set_tests_properties(\"\${test}\" PROPERTIES LABELS \"${T_LABELS};slow\")\nendforeach()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
endfunction()

# di_fuzzer(NAME fuzz_json SOURCES … LIBS …): the entry point LLVMFuzzerTestOneInput with a driver that mutates the corpus
# by itself (tests/fuzz/driver.cc), or with libFuzzer when the compiler is clang and DI_LIBFUZZER is on.
function(di_fuzzer)
  cmake_parse_arguments(F "" "NAME" "SOURCES;LIBS" ${ARGN})
  if(NOT DI_BUILD_FUZZERS)
    return()
  endif()
  set(corpus "tests/fuzz/corpus/${F_NAME}")
  if(DI_LIBFUZZER AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_executable(${F_NAME} ${F_SOURCES})
    target_compile_options(${F_NAME} PRIVATE -fsanitize=fuzzer)
    target_link_options(${F_NAME} PRIVATE -fsanitize=fuzzer)
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/corpus/${F_NAME}")  # new inputs go here, not into the source tree
    set(arguments -max_total_time=2 "${CMAKE_BINARY_DIR}/corpus/${F_NAME}" "${corpus}")
  else()
    add_executable(${F_NAME} ${F_SOURCES} "${CMAKE_SOURCE_DIR}/tests/fuzz/driver.cc")
    set(arguments --corpus "${corpus}" --seconds 2)
  endif()
  target_include_directories(${F_NAME} PRIVATE "${CMAKE_SOURCE_DIR}/tests")
  target_link_libraries(${F_NAME} PRIVATE ${F_LIBS})
  add_test(NAME ${F_NAME} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}" COMMAND ${F_NAME} ${arguments})
  set_tests_properties(${F_NAME} PROPERTIES LABELS "foundation;fuzz" TIMEOUT 300)
endfunction()
