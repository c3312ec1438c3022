/* The tensors of arguments or results, and the text of the rest. */
#include "watch.h"

void begin_flattening(flattened_t *flattened) {
    flattened->count = 0;
    begin_scalars_text(&flattened->others);
}

watch_status flatten_value(flattened_t *flattened, PyObject *value) {
    if (is_tensor(value)) {
        if (flattened->count == MOST_TENSORS) return STATUS_LEFT_TO_PYTHON;
        flattened->tensors[flattened->count++] = value;
        return STATUS_DONE;
    }
    if (value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value))
        return append_scalar_repr_hiding_paths(&flattened->others, value);
    if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
        Py_ssize_t length = PySequence_Fast_GET_SIZE(value);
        watch_status status = append_scalar_number(&flattened->others, (long)length);
        for (Py_ssize_t i = 0; i < length && status > 0; i++)
            status = flatten_value(flattened, PySequence_Fast_GET_ITEM(value, i));
        return status;
    }
    PyObject *tensors = PyList_New(0), *others = PyList_New(0), *values = PyTuple_Pack(1, value), *done = NULL;
    if (tensors && others && values)
        done = PyObject_CallFunctionObjArgs(host.flatten_to_tensors_and_stable_values, values, host.Tensor, tensors,
                                            others, NULL);
    watch_status status = STATUS_ERROR;
    if (done) /* tensors here are of a subclass, or lie in a dict */
        status = PyList_GET_SIZE(tensors) ? STATUS_LEFT_TO_PYTHON : STATUS_DONE;
    for (Py_ssize_t i = 0; status > 0 && i < PyList_GET_SIZE(others); i++)
        status = append_scalar_repr_hiding_paths(&flattened->others, PyList_GET_ITEM(others, i));
    Py_XDECREF(done);
    Py_XDECREF(tensors);
    Py_XDECREF(others);
    Py_XDECREF(values);
    return status;
}
