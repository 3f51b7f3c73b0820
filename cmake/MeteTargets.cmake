# How every target of mete is built. A layer's CMakeLists.txt uses these functions and little else.
#
#   mete_library(NAME SOURCES a.cc … [DEPENDS mete_base …])     static library mete_NAME
#   mete_program(NAME SOURCES main.cc … [DEPENDS …])             program NAME in <build>/bin
#   mete_test(NAME SOURCES a_test.cc … [DEPENDS …] [LABEL unit|scenario|e2e] [THREADED] [SLOW])
#                                                                GoogleTest binary, run by ctest; unit: in-process, for sanitizers;
#                                                                THREADED: more than one thread runs in it, for TSan to watch;
#                                                                SLOW: started before the others, so that none waits for it at the end
#   mete_benchmark(NAME SOURCES a_benchmark.cc … [DEPENDS …])    google-benchmark binary, run by hand or by bench/
#   mete_fuzz(NAME SOURCES a_fuzz.cc … [DEPENDS …])              LLVMFuzzerTestOneInput; a libFuzzer binary under ASan, else one
#                                                                that replays its corpus
#
# The targets mete_unit_tests and mete_threaded_tests build the in-process tests only: what a sanitizer is to watch.
#
#   mete_cold(NAME…)                                             nothing in these targets is done often: -O1 in Release, which
#                                                                compiles in three quarters of the time
#
# Includes are written from the repository's src/ ("ledger/gate.h"), its root for the emulator ("emulator/engine/model.h")
# and include/ ("mete/cuda.h").

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
add_compile_options(-fPIC)   # programs too, so that they can share precompiled headers with libraries
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEV "-O1 -g1 -fno-omit-frame-pointer")
set(CMAKE_C_FLAGS_DEV "-O1 -g1 -fno-omit-frame-pointer")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1 -fno-omit-frame-pointer")
set(CMAKE_C_FLAGS_DEBUG "-O0 -g1 -fno-omit-frame-pointer")
# The presets that build everything from nothing compile several sources at once (CMAKE_UNITY_BUILD): half the time, for most
# of it goes into reading the same headers. So a name in an unnamed namespace is used once in a target.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 30)
# Unit tests are built where they are run: ./check runs them under sanitizers, and the release build without them.
option(METE_UNIT_TESTS "Build the in-process tests with everything else" ON)
set(METE_FUZZ_SECONDS 5 CACHE STRING "How long a fuzz target runs as a test")
set(METE_SANITIZE "" CACHE STRING "Sanitizers for every target, for example address,undefined")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(METE_CCACHE ccache)
if(METE_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${METE_CCACHE})
  # What ccache asks for where precompiled headers are used; and what is not in the cache is compiled at once, not
  # preprocessed first.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${METE_CCACHE})
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)   # GCC 12 cries wolf about operator+ of strings (its bug 105651)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Embedded files are longer than the least that a compiler must take; without optimisation no loop becomes vector code.
  add_compile_options(-Wno-overlength-strings -Wno-pass-failed)
endif()
if(METE_SANITIZE)
  # enum: C programs pass any number where the drivers' interfaces say an enumeration.
  add_compile_options(-fsanitize=${METE_SANITIZE} -fno-sanitize-recover=all -fno-sanitize=enum)
  add_link_options(-fsanitize=${METE_SANITIZE})
endif()

add_custom_target(mete_unit_tests)
add_custom_target(mete_threaded_tests)

include_directories(${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/include)

find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_package(Threads REQUIRED)
find_package(GTest)
find_package(benchmark)
include(GoogleTest)

# Libraries' headers that the product includes everywhere, compiled once. Few on purpose: a large one (with CLI11 and
# spdlog) was measured to cost more than it saves. Only for targets built on mete_base: what is
# loaded into tenants sees nothing of them.
add_library(mete_pch OBJECT ${CMAKE_SOURCE_DIR}/cmake/precompiled.cc)
target_link_libraries(mete_pch PRIVATE mete_base)
target_compile_options(mete_pch PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
set(METE_TEST_OPTIONS -O0)   # the tests' own code: a third of the time to compile under sanitizers; what they test is as built
set(METE_PRECOMPILED <absl/status/statusor.h> <fmt/format.h> <nlohmann/json.hpp> <algorithm> <functional> <map> <memory> <optional> <string> <vector>)
target_precompile_headers(mete_pch PRIVATE ${METE_PRECOMPILED})
add_library(mete_pch_test OBJECT ${CMAKE_SOURCE_DIR}/cmake/precompiled.cc)
if(GTest_FOUND)
  target_link_libraries(mete_pch_test PRIVATE mete_base GTest::gmock)
  target_compile_options(mete_pch_test PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  target_compile_options(mete_pch_test PRIVATE ${METE_TEST_OPTIONS})
  target_precompile_headers(mete_pch_test PRIVATE ${METE_PRECOMPILED} <gmock/gmock.h>)
endif()
# And for tests of what is not built on mete_base.
add_library(mete_pch_plain_test OBJECT ${CMAKE_SOURCE_DIR}/cmake/precompiled.cc)
if(GTest_FOUND)
  target_link_libraries(mete_pch_plain_test PRIVATE GTest::gmock)
  target_compile_options(mete_pch_plain_test PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess> ${METE_TEST_OPTIONS})
  target_precompile_headers(mete_pch_plain_test PRIVATE <algorithm> <functional> <map> <memory> <string> <vector> <gmock/gmock.h>)
endif()
set_target_properties(mete_pch mete_pch_test mete_pch_plain_test PROPERTIES EXCLUDE_FROM_ALL ON)

set(METE_BUILT_ON_BASE mete_base mete_gpu mete_nvml mete_plan mete_plan_experiment mete_mechanism mete_share mete_share_testing mete_cli mete_load mete_emulator_engine mete_emulator_simulate)
function(mete_precompile NAME PCH)
  foreach(dependency IN LISTS ARGN)
    if(dependency IN_LIST METE_BUILT_ON_BASE)
      target_precompile_headers(${NAME} REUSE_FROM ${PCH})
      target_compile_options(${NAME} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # for ccache
      return()
    endif()
  endforeach()
  if(PCH STREQUAL mete_pch_test)
    target_precompile_headers(${NAME} REUSE_FROM mete_pch_plain_test)
    target_compile_options(${NAME} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endif()
endfunction()

function(mete_library NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(mete_${NAME} STATIC ${ARG_SOURCES})
  target_link_libraries(mete_${NAME} PUBLIC ${ARG_DEPENDS})
  mete_precompile(mete_${NAME} mete_pch ${ARG_DEPENDS})
endfunction()

function(mete_program NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPENDS})
  mete_precompile(${NAME} mete_pch ${ARG_DEPENDS})
endfunction()

function(mete_test NAME)
  cmake_parse_arguments(ARG "THREADED;SLOW" "LABEL" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  set(unit FALSE)
  if(ARG_LABEL STREQUAL "unit")
    set(unit TRUE)
  endif()
  if(NOT GTest_FOUND OR (unit AND NOT METE_UNIT_TESTS))
    add_executable(${NAME} EXCLUDE_FROM_ALL ${ARG_SOURCES})   # known by name, never built
    return()
  endif()
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  if(METE_UNIT_TESTS)
    target_compile_options(${NAME} PRIVATE ${METE_TEST_OPTIONS})
    mete_precompile(${NAME} mete_pch_test ${ARG_DEPENDS})
  else()  # a few tests: not worth precompiled headers of their own
    mete_precompile(${NAME} mete_pch ${ARG_DEPENDS})
  endif()
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(unit)
    add_dependencies(mete_unit_tests ${NAME})
  endif()
  add_test(NAME ${NAME} COMMAND ${NAME})
  if(ARG_THREADED)
    add_dependencies(mete_threaded_tests ${NAME})
    list(APPEND ARG_LABEL threaded)
  endif()
  set_tests_properties(${NAME} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT 300)
  if(ARG_SLOW)
    set_tests_properties(${NAME} PROPERTIES COST 100)
  endif()
endfunction()

function(mete_cold)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endforeach()
endfunction()

function(mete_benchmark NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  if(NOT benchmark_FOUND)
    add_executable(${NAME} EXCLUDE_FROM_ALL ${ARG_SOURCES})
    return()
  endif()
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPENDS} benchmark::benchmark)
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endfunction()

# GCC 12 also sees overruns where operator+ of strings is inlined (its bugs 105329 and 105651): off where it does.
function(mete_no_string_alarms)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "$<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-stringop-overflow>")
endfunction()

# With ASan and clang a libFuzzer binary, run for METE_FUZZ_SECONDS as a test; else one that replays its corpus.
function(mete_fuzz NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  if(NOT METE_UNIT_TESTS)
    add_executable(${NAME} EXCLUDE_FROM_ALL ${ARG_SOURCES})
    return()
  endif()
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPENDS})
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  string(REGEX REPLACE "_fuzz$" "" corpus ${NAME})
  set(corpus ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${corpus})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND METE_SANITIZE MATCHES "address")
    target_compile_options(${NAME} PRIVATE -fsanitize=fuzzer)
    target_link_options(${NAME} PRIVATE -fsanitize=fuzzer)
    set(found ${CMAKE_BINARY_DIR}/fuzz/found/${NAME})   # what is new stays out of the repository
    file(MAKE_DIRECTORY ${found})
    add_test(NAME ${NAME} COMMAND ${NAME} -max_total_time=${METE_FUZZ_SECONDS} -seed=1 -close_fd_mask=3 -artifact_prefix=${found}/ ${found} ${corpus})
    set(time 900)
  else()
    if(NOT TARGET mete_fuzz_replay)
      add_library(mete_fuzz_replay STATIC EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.cc)
    endif()
    target_link_libraries(${NAME} PRIVATE mete_fuzz_replay)
    add_test(NAME ${NAME} COMMAND ${NAME} -runs=20000 ${corpus})
    set(time 300)
  endif()
  set_tests_properties(${NAME} PROPERTIES LABELS fuzz TIMEOUT ${time})
  add_dependencies(mete_unit_tests ${NAME})
endfunction()
