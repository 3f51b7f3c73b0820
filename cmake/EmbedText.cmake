# Turns text files into a .cc, so that a program carries its data with it.
#
#   mete_embed(OUT_VARIABLE NAMESPACE mete::gpu::embedded NAME=file …)
#
# makes `extern const std::string_view NAME;` for each file in that namespace and puts the generated source's path into
# OUT_VARIABLE. Declare the names where they are used. Rebuilt when a file changes.
set(METE_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(mete_embed OUT_VARIABLE NAMESPACE)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${OUT_VARIABLE}.cc)
  set(files)
  foreach(pair IN LISTS ARGN)
    string(REGEX REPLACE "^[^=]*=" "" file "${pair}")
    list(APPEND files ${file})
  endforeach()
  list(JOIN ARGN "|" pairs)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DMETE_EMBED_OUTPUT=${output} -DMETE_EMBED_NAMESPACE=${NAMESPACE}
            "-DMETE_EMBED_PAIRS=${pairs}" -P ${METE_EMBED_SCRIPT}
    DEPENDS ${files} ${METE_EMBED_SCRIPT}
    COMMENT "Embedding data into ${OUT_VARIABLE}.cc"
    VERBATIM)
  set(${OUT_VARIABLE} ${output} PARENT_SCOPE)
endfunction()

if(METE_EMBED_OUTPUT)
  set(text "#include <string_view>\n\nnamespace ${METE_EMBED_NAMESPACE} {\n")
  string(REPLACE "|" ";" pairs "${METE_EMBED_PAIRS}")
  string(REPEAT "[0-9a-f][0-9a-f]" 28 line)
  foreach(pair IN LISTS pairs)
    string(REGEX REPLACE "=.*$" "" name "${pair}")
    string(REGEX REPLACE "^[^=]*=" "" file "${pair}")
    file(READ ${file} content HEX)
    # Bytes as escapes: any content survives, and no literal grows beyond what compilers must accept.
    string(REGEX REPLACE "(${line})" "\\1\"\n    \"" content "${content}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" content "${content}")
    file(SIZE ${file} size)
    string(APPEND text "extern const std::string_view ${name};\n")
    string(APPEND text "const std::string_view ${name}(\n    \"${content}\",\n    ${size});\n")
  endforeach()
  file(WRITE ${METE_EMBED_OUTPUT} "${text}}  // namespace ${METE_EMBED_NAMESPACE}\n")
endif()
