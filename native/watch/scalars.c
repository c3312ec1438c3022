/* The text of an operator's scalars as `repr` of their list writes it, without making the list. */
#include "watch.h"

#include <stdio.h>
#include <string.h>

/* 0 where it does not fit. */
static int add(scalars_t *scalars, const char *text, size_t length) {
    size_t gap = scalars->length > 1 ? 2 : 0;
    if (scalars->length + gap + length + 1 > sizeof scalars->text) return 0;
    memcpy(scalars->text + scalars->length, ", ", gap);
    memcpy(scalars->text + scalars->length + gap, text, length);
    scalars->length += gap + length;
    return 1;
}

void scalars_begin(scalars_t *scalars) {
    scalars->text[0] = '[';
    scalars->length = 1;
}

static int add_text(scalars_t *scalars, PyObject *text) {
    Py_ssize_t length = 0;
    const char *found = text ? PyUnicode_AsUTF8AndSize(text, &length) : NULL;
    int result = found ? add(scalars, found, (size_t)length) : -1;
    Py_XDECREF(text);
    return result;
}

int scalars_add(scalars_t *scalars, PyObject *item) {
    if (item == Py_None) return add(scalars, "None", 4);
    if (item == Py_True) return add(scalars, "True", 4);
    if (item == Py_False) return add(scalars, "False", 5);
    if (PyLong_CheckExact(item)) {
        int large = 0;
        long value = PyLong_AsLongAndOverflow(item, &large);
        if (!large) return scalars_add_number(scalars, value);
    } else if (PyFloat_CheckExact(item)) {
        char *text = PyOS_double_to_string(PyFloat_AS_DOUBLE(item), 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
        int result = text ? add(scalars, text, strlen(text)) : -1;
        PyMem_Free(text);
        return result;
    }
    return add_text(scalars, PyObject_Repr(item));
}

int scalars_add_number(scalars_t *scalars, long value) {
    char text[24];
    return add(scalars, text, (size_t)snprintf(text, sizeof text, "%ld", value));
}

PyObject *scalars_text(scalars_t *scalars) {
    if (scalars->length == 1) Py_RETURN_NONE;
    scalars->text[scalars->length] = ']'; /* `add` left room for it */
    return PyBytes_FromStringAndSize(scalars->text, (Py_ssize_t)scalars->length + 1);
}
