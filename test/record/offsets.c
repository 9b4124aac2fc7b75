/* The offsets of src/record/python.def, from the headers of the Python that it is compiled against. */
#define Py_BUILD_CORE 1
#include <Python.h>

#include "internal/pycore_code.h"
#include "internal/pycore_frame.h"
#include <stddef.h>

#if PY_MINOR_VERSION >= 14
#include "internal/pycore_interpframe_structs.h"
#endif

#if PY_MINOR_VERSION < 13
#define FRAME cframe
#define IN_CFRAME (int)offsetof(_PyCFrame, current_frame)
#define CODE f_code
#define INSTRUCTION prev_instr
#else
#define FRAME current_frame
#define IN_CFRAME -1
#define CODE f_executable
#define INSTRUCTION instr_ptr
#endif
#if PY_MINOR_VERSION < 12
#define ENTRY (int)offsetof(_PyInterpreterFrame, is_entry)
#else
#define ENTRY -1
#endif

int main(void) {
    printf("X(%d, %zu, %zu, %d, %zu, %zu, %zu, %zu, %d, %zu, %zu, %zu, %zu, %zu, %zu, %zu)\n", PY_MINOR_VERSION,
           offsetof(PyThreadState, native_thread_id), offsetof(PyThreadState, FRAME), IN_CFRAME,
           offsetof(_PyInterpreterFrame, CODE), offsetof(_PyInterpreterFrame, INSTRUCTION),
           offsetof(_PyInterpreterFrame, previous), offsetof(_PyInterpreterFrame, owner), ENTRY,
           offsetof(PyCodeObject, co_filename), offsetof(PyCodeObject, co_qualname),
           offsetof(PyCodeObject, co_linetable), offsetof(PyCodeObject, co_firstlineno),
           offsetof(PyCodeObject, co_code_adaptive), sizeof(PyASCIIObject), sizeof(PyCompactUnicodeObject));
    return 0;
}
