# Compiler settings shared by every target of the project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(di_options INTERFACE)
target_compile_options(di_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror
  -Wno-missing-field-initializers  # descriptors are filled by designated initialisers; the rest defaults
  # Results are part of the contract: the compiler may not contract a*b+c on its own, reorder
  # sums, or assume the absence of NaN. Kernels ask for fma where they want it.
  -ffp-contract=off -fno-fast-math)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these falsely inside libstdc++ at -O2.
  target_compile_options(di_options INTERFACE -Wno-maybe-uninitialized -Wno-stringop-overflow
                         -Wno-array-bounds -Wno-restrict -Wno-dangling-pointer -Wno-stringop-overread)
endif()
target_include_directories(di_options INTERFACE "${CMAKE_SOURCE_DIR}/include")

if(DI_LIBFUZZER)
  target_compile_options(di_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(DI_SANITIZE)
  target_compile_options(di_options INTERFACE -fsanitize=${DI_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(di_options INTERFACE -fsanitize=${DI_SANITIZE})
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  set(CMAKE_C_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()
