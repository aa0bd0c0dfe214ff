# Included where a wheel is built (pyproject.toml): machine code of the compiled loops for most CPUs, a minute on two cores.
# It is apart from CMakeLists.txt, so that the emulated libraries of a checkout are not built anew when this changes.
find_package(Python REQUIRED COMPONENTS Interpreter)
set(loops ${CMAKE_BINARY_DIR}/loops)
add_custom_command(
  OUTPUT ${loops}/built
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${loops}
  COMMAND ${Python_EXECUTABLE} -B -m presim.verbs.prepare --portable ${loops}
  COMMAND ${CMAKE_COMMAND} -E touch ${loops}/built
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}/src
  COMMENT "compiling loops" VERBATIM)
add_custom_target(presim_loops ALL DEPENDS ${loops}/built)
install(DIRECTORY ${loops}/ DESTINATION presim/system/loops FILES_MATCHING PATTERN "*.o")
