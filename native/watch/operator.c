/* One operator: digest its operands, call it, digest its results. `operator_mode.py` does the same and says why. */
#include "watch.h"

#include <string.h>

enum { EVENT_BYTES = 40 };

typedef struct {
    flattened_t inputs;
    PyObject *records[MOST_TENSORS]; /* of the memory of these tensors; owned, or NULL */
    PyObject *written_record; /* of the memory that is written into, borrowed from `records` */
    long flags, location_id;
    uint64_t input_digest;
    uint32_t scalars;
} event_t;

static void release_event(event_t *event) {
    for (Py_ssize_t i = 0; i < event->inputs.count; i++) Py_XDECREF(event->records[i]);
    event->inputs.count = 0;
}

/* Find tensors, scalars and records. It records nothing yet, so that the slow way can still do all of it. */
static watch_status collect_operands_and_records(watcher_t *watcher, event_t *event, PyObject *args, PyObject *kwargs) {
    watch_status status = STATUS_DONE;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args) && status > 0; i++)
        status = flatten_value(&event->inputs, PyTuple_GET_ITEM(args, i));
    PyObject *key, *value;
    for (Py_ssize_t at = 0; status > 0 && kwargs && PyDict_Next(kwargs, &at, &key, &value);)
        status = flatten_value(&event->inputs, value);
    memset(event->records, 0, sizeof *event->records * (size_t)event->inputs.count);
    for (Py_ssize_t i = 0; i < event->inputs.count && status > 0; i++) {
        watch_status plain = is_plain_cpu_tensor(event->inputs.tensors[i]);
        if (plain <= 0) return plain < 0 ? STATUS_ERROR : STATUS_LEFT_TO_PYTHON;
        if (!(event->records[i] = find_or_add_record(watcher, event->inputs.tensors[i]))) return STATUS_ERROR;
        if (slot_is_true(event->records[i], storage_at.uninitialised)) return STATUS_LEFT_TO_PYTHON;
    }
    return status;
}

static watch_status xxh3_64(PyObject *bytes, uint64_t *value) {
    PyObject *found = PyObject_CallOneArg(host.xxh3_64_intdigest, bytes);
    if (!found) return STATUS_ERROR;
    *value = PyLong_AsUnsignedLongLong(found);
    Py_DECREF(found);
    return STATUS_DONE;
}

static PyObject *utf8_repr(PyObject *object) {
    PyObject *text = PyObject_Repr(object);
    PyObject *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
    Py_XDECREF(text);
    return bytes;
}

/* What the event says of the operator's inputs: phase and location_id, their digests, the scalars. Runs before the
 * operator, because an operator that writes in location_id changes what its inputs hold. */
static watch_status fill_event_input_fields(watcher_t *watcher, PyObject *operator, event_t *event, PyObject *args) {
    long phase, thread = slot_number(watcher->state, state_at.number);
    if (find_phase_and_location_noting_new_nodes(watcher, event->inputs.tensors, event->inputs.count, &phase,
                                                 &event->location_id) < 0)
        return STATUS_ERROR;
    event->flags = phase;
    bool overwrites = slot_is_true(operator, operator_at.overwrites);
    bool writes_first = overwrites || slot_is_true(operator, operator_at.in_place);
    PyObject *written = writes_first && PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : NULL;
    Py_ssize_t used = 0; /* inputs: what is overwritten is none */
    for (Py_ssize_t i = 0; i < event->inputs.count; i++) {
        if (event->inputs.tensors[i] == written) event->written_record = event->records[i];
        used += !overwrites || event->inputs.tensors[i] != written;
    }
    PyObject *joined = PyBytes_FromStringAndSize(NULL, DIGEST_BYTES * used);
    if (!joined) return STATUS_ERROR;
    for (Py_ssize_t i = 0, at = 0; i < event->inputs.count; i++) {
        PyObject *record = event->records[i];
        if (overwrites && event->inputs.tensors[i] == written) continue;
        long writer = slot_number(record, storage_at.last_writer);
        if (writer != thread && writer >= 0) event->flags |= host.flag_foreign_write;
        PyObject *digest = digest_input(watcher, event->inputs.tensors[i], record);
        if (!digest || !PyBytes_CheckExact(digest) || PyBytes_GET_SIZE(digest) != DIGEST_BYTES) {
            if (digest) PyErr_SetString(PyExc_TypeError, "a digest is 16 bytes");
            Py_XDECREF(digest);
            Py_DECREF(joined);
            return STATUS_ERROR;
        }
        memcpy(PyBytes_AS_STRING(joined) + DIGEST_BYTES * at++, PyBytes_AS_STRING(digest), DIGEST_BYTES);
        Py_DECREF(digest);
    }
    if (!used) event->flags |= host.flag_no_inputs;
    watch_status status = xxh3_64(joined, &event->input_digest);
    Py_DECREF(joined);
    if (status < 0) return status;
    uint64_t scalars = 0;
    PyObject *text = finish_scalars_bytes_or_none(&event->inputs.others);
    if (!text) return STATUS_ERROR;
    if (text != Py_None) status = xxh3_64(text, &scalars);
    event->scalars = (uint32_t)scalars;
    Py_DECREF(text);
    return status;
}

static void store_little_endian(unsigned char *out, uint64_t value, int byte_count) {
    for (int i = 0; i < byte_count; i++) out[i] = (unsigned char)(value >> (8 * i));
}

/* `TraceWriter.append`, which is called only where it will write: the others go straight to its deque. */
static watch_status append_packed_event(watcher_t *watcher, PyObject *writer, PyObject *packed) {
    if (watcher->writer != writer) {
        PyObject *pending = PyObject_GetAttr(writer, names.pending);
        PyObject *push = pending ? PyObject_GetAttr(pending, names.append) : NULL;
        if (!push) return Py_XDECREF(pending), STATUS_ERROR;
        Py_INCREF(writer);
        Py_XSETREF(watcher->writer, writer);
        Py_XSETREF(watcher->pending, pending);
        Py_XSETREF(watcher->push, push);
    }
    Py_ssize_t waiting = PySequence_Size(watcher->pending);
    if (waiting < 0) return STATUS_ERROR;
    PyObject *flush_at = PyObject_GetAttr(writer, names.flush_at);
    long limit = flush_at ? PyLong_AsLong(flush_at) : -1;
    Py_XDECREF(flush_at);
    if (limit < 0) return STATUS_ERROR;
    PyObject *done = waiting + 1 < limit ? PyObject_CallOneArg(watcher->push, packed)
                                         : PyObject_CallMethodOneArg(writer, names.append, packed);
    Py_XDECREF(done);
    return done ? STATUS_DONE : STATUS_ERROR;
}

/* Write the event as `format.EVENT` packs it. */
static watch_status append_operator_event(watcher_t *watcher, PyObject *writer, PyObject *operator, event_t *event,
                                          PyObject *digest) {
    long name_id = slot_number(operator, operator_at.name_id), thread = slot_number(watcher->state, state_at.number);
    if (thread < 0 || thread > 0xFFFF)
        return PyErr_SetString(PyExc_ValueError, "a thread without a number"), STATUS_ERROR;
    if (name_id < 0) {
        PyObject *name = borrow_slot_value(operator, operator_at.name);
        PyObject *found = PyObject_CallMethodOneArg(writer, names.intern_string, name);
        if (!found) return STATUS_ERROR;
        set_slot(operator, operator_at.name_id, found);
        name_id = PyLong_AsLong(found);
        Py_DECREF(found);
    }
    long operator_count = slot_number(watcher->state, state_at.operator_count) + 1;
    if (set_slot_number(watcher->state, state_at.operator_count, operator_count) < 0) return STATUS_ERROR;
    PyObject *packed = PyBytes_FromStringAndSize(NULL, EVENT_BYTES);
    if (!packed) return STATUS_ERROR;
    unsigned char *out = (unsigned char *)PyBytes_AS_STRING(packed);
    store_little_endian(out, (uint64_t)host.event_operator, 1);
    store_little_endian(out + 1, (uint64_t)event->flags, 1);
    store_little_endian(out + 2, (uint64_t)thread, 2);
    store_little_endian(out + 4, (uint64_t)name_id, 4);
    store_little_endian(out + 8, (uint64_t)event->location_id, 4);
    store_little_endian(out + 12, event->scalars, 4);
    store_little_endian(out + 16, event->input_digest, 8);
    memcpy(out + 24, PyBytes_AS_STRING(digest), DIGEST_BYTES);
    watch_status status = append_packed_event(watcher, writer, packed);
    Py_DECREF(packed);
    return status;
}

/* The digest of a tuple or list of fresh tensors and None; NULL without an error where it is something else. */
static PyObject *try_combine_fresh_tensor_digests(watcher_t *watcher, PyObject *out) {
    Py_ssize_t length = PySequence_Fast_GET_SIZE(out), filled = 0;
    PyObject *values = NULL, *text = NULL, *joined = NULL, *found = NULL, *count = PyLong_FromSsize_t(length);
    char digests[DIGEST_BYTES * MOST_TENSORS];
    if (!count || !(values = PyList_New(0)) || PyList_Append(values, count)) goto done;
    if (length > MOST_TENSORS) goto done;
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(out, i);
        if (item == Py_None) {
            if (PyList_Append(values, item)) goto done;
        } else if (!is_tensor(item) || is_plain_cpu_tensor(item) <= 0) {
            goto done;
        }
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(out, i);
        if (item == Py_None) continue;
        PyObject *value = digest_output(watcher, item);
        if (!value) goto done;
        memcpy(digests + DIGEST_BYTES * filled++, PyBytes_AS_STRING(value), DIGEST_BYTES);
        Py_DECREF(value);
    }
    if (!(text = utf8_repr(values))) goto done;
    if (!(joined = PyBytes_FromStringAndSize(NULL, DIGEST_BYTES * filled + PyBytes_GET_SIZE(text)))) goto done;
    memcpy(PyBytes_AS_STRING(joined), digests, (size_t)(DIGEST_BYTES * filled));
    memcpy(PyBytes_AS_STRING(joined) + DIGEST_BYTES * filled, PyBytes_AS_STRING(text), (size_t)PyBytes_GET_SIZE(text));
    found = PyObject_CallOneArg(host.xxh3_128_digest, joined);
done:
    Py_XDECREF(values);
    Py_XDECREF(text);
    Py_XDECREF(joined);
    Py_XDECREF(count);
    return found;
}

/* Let `OperatorMode._record_results` record unusual results: the operator has run, so it cannot start again. */
static watch_status record_results_in_python(watcher_t *watcher, PyObject *operator, event_t *event, PyObject *args,
                                             PyObject *kwargs, PyObject *out) {
    PyObject *known = Py_BuildValue("(llKI)", event->flags, event->location_id, (unsigned long long)event->input_digest,
                                    (unsigned)event->scalars);
    PyObject *record = event->written_record ? event->written_record : Py_None, *done = NULL;
    if (known && !PyObject_SetAttr((PyObject *)watcher, names.written_record, record))
        done = PyObject_CallMethodObjArgs((PyObject *)watcher, names.record_results, operator, args,
                                          kwargs ? kwargs : Py_None, out, watcher->state, known, NULL);
    Py_XDECREF(known);
    Py_XDECREF(done);
    return done ? STATUS_DONE : STATUS_ERROR;
}

/* Digest the results, and write the event. */
static watch_status digest_results_and_append_event(watcher_t *watcher, PyObject *operator, event_t *event,
                                                    PyObject *args, PyObject *kwargs, PyObject *out) {
    PyObject *digest = NULL;
    if (slot_is_true(operator, operator_at.writes_nothing)) {
        if ((PyObject *)Py_TYPE(out) == host.Tensor) {
            watch_status plain = is_plain_cpu_tensor(out);
            if (plain < 0) return STATUS_ERROR;
            if (plain && !(digest = digest_output(watcher, out))) return STATUS_ERROR;
        } else if (PyTuple_CheckExact(out) || PyList_CheckExact(out)) {
            digest = try_combine_fresh_tensor_digests(watcher, out);
            if (!digest && PyErr_Occurred()) return STATUS_ERROR;
        }
    } else if (event->written_record && out == PyTuple_GET_ITEM(args, 0)) {
        if (!(digest = digest_written(watcher, out, event->written_record))) return STATUS_ERROR;
    }
    if (!digest) return record_results_in_python(watcher, operator, event, args, kwargs, out);
    PyObject *writer = get_or_open_trace_writer(watcher);
    watch_status status = writer ? STATUS_DONE : STATUS_ERROR;
    if (writer && writer != Py_None) status = append_operator_event(watcher, writer, operator, event, digest);
    Py_XDECREF(writer);
    Py_DECREF(digest);
    return status;
}

/* The recorder failed: leave the operator out and let the program continue. An error that is no `Exception`, such as
 * KeyboardInterrupt, is the program's: it stays set. */
static watch_status count_failed_operator_or_propagate(watcher_t *watcher, PyObject *operator) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return STATUS_ERROR;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    PyObject *done =
        PyObject_CallMethodObjArgs((PyObject *)watcher, names.count_failed_operator, operator, error, NULL);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    Py_XDECREF(done);
    return done ? STATUS_DONE : STATUS_ERROR;
}

static watch_status is_attribute_true(PyObject *object, PyObject *name) {
    PyObject *found = PyObject_GetAttr(object, name);
    if (!found) return STATUS_ERROR;
    int answer = PyObject_IsTrue(found);
    Py_DECREF(found);
    return (watch_status)answer;
}

watch_status is_torch_function_mode_active(void) {
    PyObject *active = PyObject_CallNoArgs(host.function_mode);
    if (!active) return STATUS_ERROR;
    Py_DECREF(active); /* True and False are never freed */
    return active == Py_False ? STATUS_NO : STATUS_YES;
}

PyObject *find_watched_operator(PyObject *operators, PyObject *func) {
    PyObject *key = PyLong_FromVoidPtr(func), *found = NULL;
    if (key) found = PyDict_GetItemWithError(operators, key);
    Py_XDECREF(key);
    return found;
}

/* The operator's record if it may be recorded the quick way; NULL for the slow way. Borrowed. */
static PyObject *find_fast_path_operator(watcher_t *watcher, PyObject *func) {
    PyObject *found = find_watched_operator(watcher->operators, func);
    if (!found || slot_is_true(found, operator_at.allocates) || slot_is_true(found, operator_at.random)) return NULL;
    if (slot_is_true(found, operator_at.overwrites) && !slot_is_true(found, operator_at.overwrites_first)) return NULL;
    if (slot_number(watcher->state, state_at.inside_samerun)) return NULL;
    return is_torch_function_mode_active() ? NULL : found;
}

/* torch hands a tensor that stands for a number over as that number: the slow way makes a tensor of it again. */
bool begins_with_number(PyObject *args) {
    PyObject *first = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : NULL;
    return first && (PyLong_Check(first) || PyFloat_CheckExact(first) || PyComplex_CheckExact(first));
}

/* The operator itself, or the slow way, which tells for itself when it records. */
static PyObject *call_operator(watcher_t *watcher, PyObject *call, PyObject *args, PyObject *kwargs) {
    watcher->is_recording = 0;
    PyObject *out = PyObject_Call(call, args, kwargs);
    watcher->is_recording = 1;
    return out;
}

static PyObject *call_slow_way(watcher_t *watcher, PyObject *const *arguments, Py_ssize_t count) {
    watcher->is_recording = 0;
    PyObject *out = PyObject_Vectorcall(watcher->slow, arguments, (size_t)count, NULL);
    watcher->is_recording = 1;
    return out;
}

static PyObject *call_and_record(watcher_t *watcher, PyObject *const *arguments, Py_ssize_t count) {
    event_t event;
    if (!watcher->slow) return PyErr_SetString(PyExc_RuntimeError, "call attach first"), NULL;
    if (count < 3 || count > 4 || !PyTuple_CheckExact(arguments[2]) || begins_with_number(arguments[2]))
        return call_slow_way(watcher, arguments, count);
    PyObject *args = arguments[2], *kwargs = count == 4 && PyDict_Check(arguments[3]) ? arguments[3] : NULL;
    if (kwargs && !PyDict_GET_SIZE(kwargs)) kwargs = NULL;
    PyObject *operator = find_fast_path_operator(watcher, arguments[0]);
    watch_status stopped = operator ? is_attribute_true(watcher->recorder, names.stopped) : STATUS_NO;
    watch_status recording = operator && !stopped ? is_attribute_true(watcher->recorder, names.recording) : STATUS_NO;
    if (stopped < 0 || recording < 0) return NULL;
    if (!operator || stopped || !recording) {
        if (PyErr_Occurred()) return NULL;
        return call_slow_way(watcher, arguments, count);
    }
    PyObject *call = borrow_slot_value(operator, operator_at.call);
    if (slot_is_true(operator, operator_at.silent)) {
        if (record_new_forward_nodes_at_user_line(watcher) < 0 &&
            count_failed_operator_or_propagate(watcher, operator) < 0)
            return NULL;
        return call_operator(watcher, call, args, kwargs);
    }
    event.written_record = NULL;
    begin_flattening(&event.inputs);
    event.scalars = 0;
    watch_status status = collect_operands_and_records(watcher, &event, args, kwargs);
    if (status == STATUS_LEFT_TO_PYTHON) {
        release_event(&event);
        return call_slow_way(watcher, arguments, count);
    }
    if (status > 0) status = fill_event_input_fields(watcher, operator, &event, args);
    /* An operator whose operands could not be recorded runs all the same, without an event. */
    PyObject *out = NULL;
    if (status > 0) {
        out = call_operator(watcher, call, args, kwargs);
        if (out && digest_results_and_append_event(watcher, operator, &event, args, kwargs, out) < 0 &&
            count_failed_operator_or_propagate(watcher, operator) < 0)
            Py_CLEAR(out);
    } else if (count_failed_operator_or_propagate(watcher, operator) > 0) {
        out = call_operator(watcher, call, args, kwargs);
    }
    release_event(&event);
    return out;
}

/* __torch_dispatch__(func, types, args=(), kwargs=None) */
PyObject *torch_dispatch(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    watcher_t *watcher = (watcher_t *)self;
    char was_recording = watcher->is_recording;
    watcher->is_recording = 1;
    PyObject *out = call_and_record(watcher, arguments, count);
    watcher->is_recording = was_recording;
    return out;
}
