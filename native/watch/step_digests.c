/* One operator of a step that is computed twice: call it, digest its results. `operator_digests.py` does the same, says
 * why, and does what is unusual here: other tensors than plain ones of this machine, collectives, draws. */
#include "watch.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD PyObject *operators; /* id of an operator of torch -> its WatchedOperator */
    PyObject *operators_run; /* the list of what ran in this machine's memory: ExecutedOperator */
    PyObject *ExecutedOperator, *is_on_fake_tensors;
    PyObject *slow, *record_results; /* functions of `OperatorDigests`, called with self: they do everything */
    PyObject *is_concurrent;
    char offsets_count; /* is it another program where a result lies elsewhere in its memory? */
} step_digester_t;

#define FIELDS(do_it)                                                                                   \
    do_it(operators) do_it(operators_run) do_it(ExecutedOperator) do_it(is_on_fake_tensors) do_it(slow) \
        do_it(record_results) do_it(is_concurrent)

/* Are all of a tuple torch's own classes of tensors? */
static bool are_plain_types(PyObject *types) {
    if (!PyTuple_CheckExact(types)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); i++)
        if (PyTuple_GET_ITEM(types, i) != host.Tensor && PyTuple_GET_ITEM(types, i) != host.Parameter) return false;
    return true;
}

/* The operator's record if it may be called the quick way; NULL, maybe with an error, for the slow way. Borrowed. */
static PyObject *find_usual_operator(step_digester_t *digester, PyObject *const *arguments, Py_ssize_t count) {
    if (count < 3 || count > 4 || !are_plain_types(arguments[1]) || !PyTuple_CheckExact(arguments[2]) ||
        begins_with_number(arguments[2]) || (count == 4 && !PyDict_Check(arguments[3])))
        return NULL;
    PyObject *found = find_watched_operator(digester->operators, arguments[0]);
    if (!found || slot_is_true(found, operator_at.random) || slot_is_true(found, operator_at.asynchronous) ||
        slot_number(found, operator_at.rank_argument) >= 0)
        return NULL;
    if (is_torch_function_mode_active()) return NULL;
    PyObject *fake = PyObject_CallNoArgs(digester->is_on_fake_tensors);
    Py_XDECREF(fake); /* True and False are never freed */
    return fake == Py_False ? found : NULL;
}

static watch_status flatten_written_argument(flattened_t *written, PyObject *place_and_name, PyObject *args,
                                             PyObject *kwargs) {
    Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(place_and_name, 0));
    PyObject *value = Py_None;
    if (at < PyTuple_GET_SIZE(args)) value = PyTuple_GET_ITEM(args, at);
    else if (kwargs) value = PyDict_GetItemWithError(kwargs, PyTuple_GET_ITEM(place_and_name, 1));
    if (!value) return PyErr_Occurred() ? STATUS_ERROR : STATUS_DONE;
    return value == Py_None ? STATUS_DONE : flatten_value(written, value);
}

/* What the operator wrote into, then what it returned besides; `others` is of what it returned. */
static watch_status flatten_results(flattened_t *results, PyObject *operator, PyObject *args, PyObject *kwargs,
                                    PyObject *out) {
    PyObject *places = borrow_slot_value(operator, operator_at.written_arguments);
    long scratch = slot_number(operator, operator_at.scratch_output);
    watch_status status = STATUS_DONE;
    begin_flattening(results);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(places) && status > 0; i++)
        status = flatten_written_argument(results, PyList_GET_ITEM(places, i), args, kwargs);
    Py_ssize_t written = results->count, kept = written;
    begin_scalars_text(&results->others);
    if (status > 0) status = flatten_value(results, out);
    for (Py_ssize_t i = written; i < results->count; i++) {
        bool is_done = i - written == scratch;
        for (Py_ssize_t k = 0; k < written && !is_done; k++) is_done = results->tensors[k] == results->tensors[i];
        if (!is_done) results->tensors[kept++] = results->tensors[i];
    }
    results->count = kept;
    return status;
}

/* (shape, offset) of each. */
static PyObject *collect_geometry(step_digester_t *digester, const flattened_t *results) {
    PyObject *geometry = PyTuple_New(results->count);
    for (Py_ssize_t i = 0; i < results->count && geometry; i++) {
        PyObject *shape = shape_of(results->tensors[i]), *pair = NULL;
        PyObject *offset = digester->offsets_count ? storage_offset_of(results->tensors[i]) : PyLong_FromLong(0);
        if (shape && offset) pair = PyTuple_Pack(2, shape, offset);
        Py_XDECREF(shape);
        Py_XDECREF(offset);
        if (pair) PyTuple_SET_ITEM(geometry, i, pair);
        else Py_CLEAR(geometry);
    }
    return geometry;
}

static PyObject *concatenate_digests(flattened_t *results) {
    PyObject *text = finish_scalars_bytes_or_none(&results->others), *joined = NULL;
    if (!text) return NULL;
    Py_ssize_t text_size = text == Py_None ? 0 : PyBytes_GET_SIZE(text);
    if ((joined = PyBytes_FromStringAndSize(NULL, DIGEST_BYTES * results->count + text_size))) {
        char *out = PyBytes_AS_STRING(joined);
        if (text_size) memcpy(out + DIGEST_BYTES * results->count, PyBytes_AS_STRING(text), (size_t)text_size);
        for (Py_ssize_t i = 0; i < results->count && joined; i++)
            if (write_digest_bytes(out + DIGEST_BYTES * i, results->tensors[i], NULL) < 0) Py_CLEAR(joined);
    }
    Py_DECREF(text);
    return joined;
}

/* Make the ExecutedOperator, a named tuple, and append it. */
static watch_status append_executed_operator(step_digester_t *digester, PyObject *operator, PyObject *geometry,
                                             PyObject *value) {
    PyObject *name = borrow_slot_value(operator, operator_at.name);
    PyObject *collectives = PyObject_GetAttr((PyObject *)digester, names.collectives);
    PyObject *inputs = collectives ? PyBytes_FromStringAndSize(NULL, 0) : NULL;
    PyObject *fields =
        inputs ? PyTuple_Pack(6, name, geometry, value, collectives, digester->is_concurrent, inputs) : NULL;
    PyObject *arguments = fields ? PyTuple_Pack(1, fields) : NULL;
    /* `tuple.__new__`, as its own `__new__` does in Python */
    PyObject *made =
        arguments ? PyTuple_Type.tp_new((PyTypeObject *)digester->ExecutedOperator, arguments, NULL) : NULL;
    int failed = made ? PyList_Append(digester->operators_run, made) : -1;
    Py_XDECREF(collectives);
    Py_XDECREF(inputs);
    Py_XDECREF(fields);
    Py_XDECREF(arguments);
    Py_XDECREF(made);
    return failed ? STATUS_ERROR : STATUS_DONE;
}

/* Nothing was appended unless it is DONE. */
static watch_status try_append_operator_result_digests(step_digester_t *digester, PyObject *operator, PyObject *args,
                                                       PyObject *kwargs, PyObject *out) {
    flattened_t results;
    watch_status status = flatten_results(&results, operator, args, kwargs, out);
    for (Py_ssize_t i = 0; i < results.count && status > 0; i++) status = is_plain_cpu_tensor(results.tensors[i]);
    if (status <= 0) return status;
    PyObject *geometry = collect_geometry(digester, &results);
    PyObject *value = geometry ? concatenate_digests(&results) : NULL;
    status = value ? append_executed_operator(digester, operator, geometry, value) : STATUS_ERROR;
    Py_XDECREF(geometry);
    Py_XDECREF(value);
    return status;
}

static PyObject *call_slow_way(step_digester_t *digester, PyObject *const *arguments, Py_ssize_t count) {
    PyObject *all[5] = {(PyObject *)digester};
    if (count > 4) return PyErr_SetString(PyExc_TypeError, "dispatch takes four arguments"), NULL;
    memcpy(all + 1, arguments, sizeof *arguments * (size_t)count);
    return PyObject_Vectorcall(digester->slow, all, (size_t)count + 1, NULL);
}

/* Where results are unusual, or could not be read (those of a transform have no memory). */
static watch_status record_results_in_python(step_digester_t *digester, PyObject *operator, PyObject *args,
                                             PyObject *kwargs, PyObject *out) {
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) return STATUS_ERROR;
        PyErr_Clear();
    }
    PyObject *none = kwargs ? NULL : PyDict_New();
    PyObject *done = NULL;
    if (kwargs || none)
        done = PyObject_CallFunctionObjArgs(digester->record_results, (PyObject *)digester, operator, args,
                                            kwargs ? kwargs : none, out, NULL);
    Py_XDECREF(none);
    Py_XDECREF(done);
    return done ? STATUS_DONE : STATUS_ERROR;
}

/* __torch_dispatch__(func, types, args=(), kwargs=None) */
static PyObject *dispatch_and_append_result_digests(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    step_digester_t *digester = (step_digester_t *)self;
    if (!digester->slow) return PyErr_SetString(PyExc_RuntimeError, "call attach first"), NULL;
    PyObject *operator = find_usual_operator(digester, arguments, count);
    if (!operator) return PyErr_Occurred() ? NULL : call_slow_way(digester, arguments, count);
    PyObject *args = arguments[2], *kwargs = count == 4 && PyDict_GET_SIZE(arguments[3]) ? arguments[3] : NULL;
    PyObject *out = PyObject_Call(borrow_slot_value(operator, operator_at.call), args, kwargs);
    if (!out || slot_is_true(operator, operator_at.silent)) return out;
    watch_status status = STATUS_LEFT_TO_PYTHON;
    if (!slot_is_true(operator, operator_at.allocates))
        status = try_append_operator_result_digests(digester, operator, args, kwargs, out);
    if (status <= 0 && record_results_in_python(digester, operator, args, kwargs, out) < 0) Py_CLEAR(out);
    return out;
}

static PyObject *attach_digester(PyObject *self, PyObject *args) {
    step_digester_t *digester = (step_digester_t *)self;
    PyObject *operators, *operators_run, *ExecutedOperator, *is_on_fake_tensors, *slow, *record_results, *is_concurrent;
    int offsets_count;
    if (!host.Tensor) return PyErr_SetString(PyExc_RuntimeError, "call setup first"), NULL;
    if (!PyArg_ParseTuple(args, "O!O!O!OOOO!p", &PyDict_Type, &operators, &PyList_Type, &operators_run, &PyType_Type,
                          &ExecutedOperator, &is_on_fake_tensors, &slow, &record_results, &PyBool_Type, &is_concurrent,
                          &offsets_count))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)ExecutedOperator, &PyTuple_Type))
        return PyErr_SetString(PyExc_TypeError, "attach: no named tuple"), NULL;
    digester->offsets_count = (char)offsets_count;
#define SET(name)    \
    Py_INCREF(name); \
    Py_XSETREF(digester->name, name);
    FIELDS(SET)
    Py_RETURN_NONE;
}

static int digester_traverse(PyObject *self, visitproc visit, void *arg) {
    step_digester_t *digester = (step_digester_t *)self;
    Py_VISIT(Py_TYPE(self));
#define VISIT(name) Py_VISIT(digester->name);
    FIELDS(VISIT)
    return 0;
}

static int digester_clear(PyObject *self) {
    step_digester_t *digester = (step_digester_t *)self;
#define CLEAR(name) Py_CLEAR(digester->name);
    FIELDS(CLEAR)
    return 0;
}

static void digester_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    digester_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef digester_methods[] = {
    {"attach", attach_digester, METH_VARARGS,
     "attach(operators, operators_run, ExecutedOperator, is_on_fake_tensors, slow, record_results, is_concurrent, "
     "offsets_count)"},
    {"dispatch", (PyCFunction)(void (*)(void))dispatch_and_append_result_digests, METH_FASTCALL,
     "The quick way of __torch_dispatch__."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot digester_slots[] = {
    {Py_tp_traverse, digester_traverse},
    {Py_tp_clear, digester_clear},
    {Py_tp_dealloc, digester_dealloc},
    {Py_tp_methods, digester_methods},
    {0, NULL},
};

PyType_Spec step_digester_spec = {
    .name = "samerun.record.watching._watch.StepDigester",
    .basicsize = sizeof(step_digester_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = digester_slots,
};
