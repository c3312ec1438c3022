/* The text of an operator's scalars as `repr` of their list writes it, without making the list. */
#include "watch.h"

#include <stdio.h>
#include <string.h>

/* LEFT_TO_PYTHON where the text does not fit. */
static watch_status try_append_text_to_list(scalars_t *scalars, const char *text, size_t length) {
    size_t gap = scalars->length > 1 ? 2 : 0;
    if (scalars->length + gap + length + 1 > sizeof scalars->text) return STATUS_LEFT_TO_PYTHON;
    memcpy(scalars->text + scalars->length, ", ", gap);
    memcpy(scalars->text + scalars->length + gap, text, length);
    scalars->length += gap + length;
    return STATUS_DONE;
}

void begin_scalars_text(scalars_t *scalars) {
    scalars->text[0] = '[';
    scalars->length = 1;
}

/* Takes the reference to `text`, which is NULL where making it failed. */
static watch_status append_text_object(scalars_t *scalars, PyObject *stolen_text_or_null) {
    Py_ssize_t length = 0;
    const char *utf8 = stolen_text_or_null ? PyUnicode_AsUTF8AndSize(stolen_text_or_null, &length) : NULL;
    watch_status status = utf8 ? try_append_text_to_list(scalars, utf8, (size_t)length) : STATUS_ERROR;
    Py_XDECREF(stolen_text_or_null);
    return status;
}

watch_status append_scalar_repr_hiding_paths(scalars_t *scalars, PyObject *scalar) {
    if (scalar == Py_None) return try_append_text_to_list(scalars, "None", 4);
    if (scalar == Py_True) return try_append_text_to_list(scalars, "True", 4);
    if (scalar == Py_False) return try_append_text_to_list(scalars, "False", 5);
    if (PyLong_CheckExact(scalar)) {
        int large = 0;
        long value = PyLong_AsLongAndOverflow(scalar, &large);
        if (!large) return append_scalar_number(scalars, value);
    } else if (PyFloat_CheckExact(scalar)) {
        char *text = PyOS_double_to_string(PyFloat_AS_DOUBLE(scalar), 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
        watch_status status = text ? try_append_text_to_list(scalars, text, strlen(text)) : STATUS_ERROR;
        PyMem_Free(text);
        return status;
    }
    if (PyUnicode_CheckExact(scalar) && PyUnicode_FindChar(scalar, '/', 0, PyUnicode_GET_LENGTH(scalar), 1) >= 0)
        return try_append_text_to_list(scalars, "'a path'", strlen("'a path'"));
    return append_text_object(scalars, PyObject_Repr(scalar));
}

watch_status append_scalar_number(scalars_t *scalars, long value) {
    char text[24];
    return try_append_text_to_list(scalars, text, (size_t)snprintf(text, sizeof text, "%ld", value));
}

PyObject *finish_scalars_bytes_or_none(scalars_t *scalars) {
    if (scalars->length == 1) Py_RETURN_NONE;
    scalars->text[scalars->length] = ']'; /* `try_append_text_to_list` left room for it */
    return PyBytes_FromStringAndSize(scalars->text, (Py_ssize_t)scalars->length + 1);
}
