/* The module `samerun.record.watching._watch`: setup, and the base type of a mode whose `dispatch` is the quick way. */
#include "watch.h"

#include <structmember.h>

host_objects_t host;
names_t names;

/* --- what the Python side hands over ----------------------------------------------------------------- */
#define OBJECT(name) {#name, &host.name, NULL, NULL}
#define NUMBER(name) {#name, NULL, &host.name, NULL}
#define ADDRESS(name) {#name, NULL, NULL, &host.name}

static const struct {
    const char *name;
    PyObject **object;
    long *number;
    uint64_t *address;
} host_fields[] = {
    OBJECT(Tensor),
    OBJECT(Parameter),
    OBJECT(strided),
    OBJECT(odd_dtypes),
    OBJECT(flatten_to_tensors_and_stable_values),
    OBJECT(StorageRecord),
    OBJECT(UntypedStorage),
    OBJECT(WatchedOperator),
    OBJECT(ThreadState),
    OBJECT(xxh3_128_digest),
    OBJECT(xxh3_64_intdigest),
    OBJECT(shape_seed),
    OBJECT(shape_seeds),
    OBJECT(digest_dense_tensor),
    OBJECT(digest),
    OBJECT(graph_task),
    OBJECT(next_sequence),
    OBJECT(current_node),
    OBJECT(grad_enabled),
    OBJECT(get_num_threads),
    OBJECT(function_mode),
    OBJECT(code_kinds),
    OBJECT(classify_code),
    OBJECT(user_kind),
    NUMBER(node_ring),
    NUMBER(phase_forward),
    NUMBER(phase_backward),
    NUMBER(phase_optimizer),
    NUMBER(phase_between),
    NUMBER(event_operator),
    NUMBER(flag_foreign_write),
    NUMBER(flag_no_inputs),
    NUMBER(large_bytes),
    NUMBER(piece_bytes),
    NUMBER(small_bytes),
    ADDRESS(digest_pieces),
    ADDRESS(openmp_parallel),
    ADDRESS(main_thread),
};

#define SAME(name) {#name, &names.name}

static const struct {
    const char *text;
    PyObject **name;
} attribute_names[] = {
    SAME(stopped),
    SAME(recording),
    SAME(writer),
    SAME(open_writer),
    SAME(find_or_add_record),
    SAME(digest_input),
    SAME(digest_new_memory),
    SAME(digest_written),
    SAME(drop_expired),
    {"_drop_above", &names.drop_above},
    SAME(append),
    {"_pending", &names.pending},
    SAME(flush_at),
    SAME(intern_string),
    SAME(intern_location),
    {"_sequence_nr", &names.sequence_nr},
    {"_record_results", &names.record_results},
    SAME(written_record),
    SAME(co_filename),
    {"_count_skipped_operator", &names.count_failed_operator},
    {"_collectives", &names.collectives},
};

/* setup(host): an object with the attributes above. Raises where this torch or Python is another than expected. */
static PyObject *setup_host_objects(PyObject *module, PyObject *fields) {
    (void)module;
    for (size_t i = 0; i < sizeof attribute_names / sizeof *attribute_names; i++)
        if (!*attribute_names[i].name &&
            !(*attribute_names[i].name = PyUnicode_InternFromString(attribute_names[i].text)))
            return NULL;
    for (size_t i = 0; i < sizeof host_fields / sizeof *host_fields; i++) {
        PyObject *found = PyObject_GetAttrString(fields, host_fields[i].name);
        if (!found) return NULL;
        if (host_fields[i].object) {
            Py_XSETREF(*host_fields[i].object, found); /* kept for good */
            continue;
        }
        if (host_fields[i].number) *host_fields[i].number = PyLong_AsLong(found);
        if (host_fields[i].address) *host_fields[i].address = PyLong_AsUnsignedLongLong(found);
        Py_DECREF(found);
        if (PyErr_Occurred()) return NULL;
    }
    if (!PyType_Check(host.StorageRecord) || !PyAnySet_Check(host.odd_dtypes) || !PyDict_Check(host.shape_seeds) ||
        !PyDict_Check(host.code_kinds))
        return PyErr_SetString(PyExc_TypeError, "setup: a field of another type"), NULL;
    if (resolve_slot_offsets() < 0 || resolve_tensor_descriptors() < 0) return NULL;
    Py_RETURN_NONE;
}

/* torch asks in Python, before every call of a mode, whether somebody registered a rule for this operator and this
 * kind of mode: three functions with cold caches each time. For our kinds the answer is no. */
static PyObject *modes_without_rules, *torch_find_dispatch_rule;

static PyObject *find_torch_dispatch_rule_unless_own_mode(PyObject *module, PyObject *const *arguments,
                                                          Py_ssize_t count) {
    (void)module;
    int is_ours = count == 2 && modes_without_rules ? PySet_Contains(modes_without_rules, arguments[1]) : 0;
    if (is_ours < 0) return NULL;
    if (is_ours) Py_RETURN_NONE;
    if (!torch_find_dispatch_rule)
        return PyErr_SetString(PyExc_RuntimeError, "call skip_dispatch_rule_lookup_for first"), NULL;
    return PyObject_Vectorcall(torch_find_dispatch_rule, arguments, (size_t)count, NULL);
}

/* skip_dispatch_rule_lookup_for(mode_class, find_rule): from now on `find_torch_dispatch_rule_unless_own_mode` returns
 * None for this kind of mode too, and asks `find_rule` for those that are not ours. */
static PyObject *skip_dispatch_rule_lookup_for(PyObject *module, PyObject *args) {
    PyObject *mode_class, *find_rule;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &mode_class, &find_rule)) return NULL;
    if (!modes_without_rules && !(modes_without_rules = PySet_New(NULL))) return NULL;
    if (PySet_Add(modes_without_rules, mode_class)) return NULL;
    Py_INCREF(find_rule);
    Py_XSETREF(torch_find_dispatch_rule, find_rule);
    Py_RETURN_NONE;
}

static PyObject *stop_borrowing_threads_after_fork(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    stop_borrowing_openmp_threads();
    Py_RETURN_NONE;
}

/* --- Watcher ----------------------------------------------------------------------------------------- */
#define FIELDS(do_it) \
    do_it(recorder) do_it(state) do_it(storages) do_it(records) do_it(operators) do_it(location_ids) do_it(slow)
#define KEPT(do_it) FIELDS(do_it) do_it(writer) do_it(pending) do_it(push)

static PyObject *attach_watcher(PyObject *self, PyObject *args) {
    watcher_t *watcher = (watcher_t *)self;
    PyObject *recorder, *state, *storages, *records, *operators, *location_ids, *slow;
    if (!host.Tensor) return PyErr_SetString(PyExc_RuntimeError, "call setup first"), NULL;
    if (!PyArg_ParseTuple(args, "OO!OO!O!O!O", &recorder, host.ThreadState, &state, &storages, &PyDict_Type, &records,
                          &PyDict_Type, &operators, &PyDict_Type, &location_ids, &slow))
        return NULL;
#define SET(name)    \
    Py_INCREF(name); \
    Py_XSETREF(watcher->name, name);
    FIELDS(SET)
    Py_RETURN_NONE;
}

static int watcher_traverse(PyObject *self, visitproc visit, void *arg) {
    watcher_t *watcher = (watcher_t *)self;
    Py_VISIT(Py_TYPE(self));
#define VISIT(name) Py_VISIT(watcher->name);
    KEPT(VISIT)
    return 0;
}

static int watcher_clear(PyObject *self) {
    watcher_t *watcher = (watcher_t *)self;
#define CLEAR(name) Py_CLEAR(watcher->name);
    KEPT(CLEAR)
    return 0;
}

static void watcher_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    watcher_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef watcher_methods[] = {
    {"attach", attach_watcher, METH_VARARGS,
     "attach(recorder, state, storages, records, operators, location_ids, slow)"},
    {"dispatch", (PyCFunction)(void (*)(void))torch_dispatch, METH_FASTCALL, "The quick way of __torch_dispatch__."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef watcher_members[] = {
    {"is_recording", T_BOOL, offsetof(watcher_t, is_recording), READONLY, "Whether the recorder works just now."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot watcher_slots[] = {
    {Py_tp_traverse, watcher_traverse}, {Py_tp_clear, watcher_clear},     {Py_tp_dealloc, watcher_dealloc},
    {Py_tp_methods, watcher_methods},   {Py_tp_members, watcher_members}, {0, NULL},
};

static PyType_Spec watcher_spec = {
    .name = "samerun.record.watching._watch.Watcher",
    .basicsize = sizeof(watcher_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = watcher_slots,
};

/* --- handlers of signals ------------------------------------------------------------------------------ */
static int simulate_signal_arrival(void *number) {
    PyErr_SetInterruptEx((int)(intptr_t)number);
    return 0;
}

/* handle_or_raise_later(number, frame), of `must_wait` and `handler`. In C, because a signal that a Python function
 * raises again comes back inside of that function, and again inside of that call. */
static PyObject *handle_or_raise_later(PyObject *pair, PyObject *args) {
    PyObject *answer = PyObject_Call(PyTuple_GET_ITEM(pair, 0), args, NULL);
    int must_wait = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    if (must_wait < 0) return NULL;
    long number = must_wait && PyTuple_GET_SIZE(args) ? PyLong_AsLong(PyTuple_GET_ITEM(args, 0)) : 0;
    if (number == -1 && PyErr_Occurred()) return NULL;
    if (must_wait && Py_AddPendingCall(simulate_signal_arrival, (void *)(intptr_t)number) == 0) Py_RETURN_NONE;
    return PyObject_Call(PyTuple_GET_ITEM(pair, 1), args, NULL);
}

static PyMethodDef handler_definition = {"handle_or_raise_later", handle_or_raise_later, METH_VARARGS, NULL};

/* make_deferring_signal_handler(must_wait, handler) */
static PyObject *make_deferring_signal_handler(PyObject *module, PyObject *args) {
    PyObject *must_wait, *handler;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &must_wait, &handler)) return NULL;
    return PyCFunction_New(&handler_definition, args);
}

static PyMethodDef methods[] = {
    {"setup", setup_host_objects, METH_O, "Take what the quick way needs to know; once."},
    {"digest", digest, METH_O, "The digest of a tensor, as `samerun.record.digests.digest.digest` gives it."},
    {"digest_of_element_digests", digest_of_element_digests, METH_VARARGS,
     "digest_of_element_digests(values, digest_other): the digest of their digests; `digest_other` gives that of what "
     "is not "
     "a "
     "tensor."},
    {"make_deferring_signal_handler", make_deferring_signal_handler, METH_VARARGS,
     "make_deferring_signal_handler(must_wait, handler): of a signal; raises it again while must_wait(number, frame)."},
    {"skip_dispatch_rule_lookup_for", skip_dispatch_rule_lookup_for, METH_VARARGS,
     "skip_dispatch_rule_lookup_for(mode_class, find_rule): what `find_torch_dispatch_rule_unless_own_mode` returns."},
    {"find_torch_dispatch_rule_unless_own_mode", (PyCFunction)(void (*)(void))find_torch_dispatch_rule_unless_own_mode,
     METH_FASTCALL, "Stands in for torch's find_torch_dispatch_rule."},
    {"stop_borrowing_threads_after_fork", stop_borrowing_threads_after_fork, METH_NOARGS,
     "Borrow no threads from now on."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_watch", NULL, -1, methods, NULL, NULL, NULL, NULL};

static watch_status add_type(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromSpec(spec);
    if (type && PyModule_AddObject(module, name, type) == 0) return STATUS_DONE; /* the module has the reference */
    Py_XDECREF(type);
    return STATUS_ERROR;
}

PyMODINIT_FUNC PyInit__watch(void) {
#ifdef Py_GIL_DISABLED
    return PyErr_SetString(PyExc_ImportError, "relies on the interpreter's lock"), NULL;
#endif
    PyObject *module = PyModule_Create(&definition);
    if (module &&
        (add_type(module, "Watcher", &watcher_spec) < 0 || add_type(module, "StepDigester", &step_digester_spec) < 0))
        Py_CLEAR(module);
    return module;
}
