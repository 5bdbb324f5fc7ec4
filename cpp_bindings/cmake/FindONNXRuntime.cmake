# Finds the headers of ONNX Runtime's C API. The library itself is not looked for: libpicme opens it at run time.
#
#   ONNXRUNTIME_ROOT     (variable or environment) an unpacked ONNX Runtime release, or any folder with include/onnxruntime_c_api.h
#   otherwise            the system's, such as Debian's libonnxruntime-dev (13 and later)
#   otherwise            what cmake/fetch_headers.sh fetches into the build folder (on Debian; ONNXRUNTIME_FETCH=OFF forbids it)
#
# Defines ONNXRuntime_FOUND, ONNXRuntime_VERSION and the target ONNXRuntime::headers.
option(ONNXRUNTIME_FETCH "Fetch ONNX Runtime's headers if they are not found" ON)

set(_onnxruntime_fetched "${CMAKE_BINARY_DIR}/onnxruntime-headers")
if(ONNXRUNTIME_ROOT OR DEFINED ENV{ONNXRUNTIME_ROOT})
    find_path(ONNXRuntime_INCLUDE_DIR onnxruntime_c_api.h NO_DEFAULT_PATH
        PATHS "${ONNXRUNTIME_ROOT}" "$ENV{ONNXRUNTIME_ROOT}"
        PATH_SUFFIXES include include/onnxruntime include/onnxruntime/core/session)
else()
    find_path(ONNXRuntime_INCLUDE_DIR onnxruntime_c_api.h
        HINTS "${_onnxruntime_fetched}/include" PATH_SUFFIXES onnxruntime onnxruntime/core/session)
    if(NOT ONNXRuntime_INCLUDE_DIR AND ONNXRUNTIME_FETCH)
        message(STATUS "Fetching ONNX Runtime's headers")
        execute_process(COMMAND "${CMAKE_CURRENT_LIST_DIR}/fetch_headers.sh" "${_onnxruntime_fetched}")
        find_path(ONNXRuntime_INCLUDE_DIR onnxruntime_c_api.h NO_DEFAULT_PATH PATHS "${_onnxruntime_fetched}/include")
    endif()
endif()

if(ONNXRuntime_INCLUDE_DIR)
    file(STRINGS "${ONNXRuntime_INCLUDE_DIR}/onnxruntime_c_api.h" _onnxruntime_line REGEX "^#define ORT_API_VERSION [0-9]+")
    string(REGEX MATCH "[0-9]+" _onnxruntime_api "${_onnxruntime_line}")
    set(ONNXRuntime_VERSION "1.${_onnxruntime_api}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ONNXRuntime REQUIRED_VARS ONNXRuntime_INCLUDE_DIR VERSION_VAR ONNXRuntime_VERSION
    REASON_FAILURE_MESSAGE "set ONNXRUNTIME_ROOT to an ONNX Runtime release")
mark_as_advanced(ONNXRuntime_INCLUDE_DIR)

if(ONNXRuntime_FOUND AND NOT TARGET ONNXRuntime::headers)
    add_library(ONNXRuntime::headers INTERFACE IMPORTED)
    set_target_properties(ONNXRuntime::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${ONNXRuntime_INCLUDE_DIR}")
endif()
