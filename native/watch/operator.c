/* One operator: what is known before, the call, what came out. `OperatorMode` in Python says why. */
#include "watch.h"

#include <string.h>

enum { MOST_TENSORS = 128 };
/* Operators of more tensors take the slow way, as do all unusual ones. */

typedef struct {
    PyObject *tensors[MOST_TENSORS], *records[MOST_TENSORS]; /* borrowed; owned */
    Py_ssize_t count;
    scalars_t others;
    PyObject *written; /* the record of the memory that is written into, borrowed from `records` */
    long flags, place;
    uint64_t inputs;
    uint32_t scalars;
} event_t;

enum { FAILED = -1, DONE = 0, UNUSUAL = 1 };

static void clear(event_t *event) {
    for (Py_ssize_t i = 0; i < event->count; i++) Py_XDECREF(event->records[i]);
    event->count = 0;
}

/* What the functions of `scalars.c` answer, in our words. */
static int as_result(int added) { return added < 0 ? FAILED : added ? DONE : UNUSUAL; }

/* `operator.flatten` of one argument. */
static int flatten(event_t *event, PyObject *item) {
    if (is_tensor(item)) {
        if (event->count == MOST_TENSORS) return UNUSUAL;
        event->records[event->count] = NULL;
        event->tensors[event->count++] = item;
        return DONE;
    }
    if (item == Py_None || PyBool_Check(item) || PyLong_CheckExact(item) || PyFloat_CheckExact(item))
        return as_result(scalars_add(&event->others, item));
    if (PyList_CheckExact(item) || PyTuple_CheckExact(item)) {
        Py_ssize_t length = PySequence_Fast_GET_SIZE(item);
        int result = as_result(scalars_add_number(&event->others, (long)length));
        for (Py_ssize_t i = 0; i < length && !result; i++) result = flatten(event, PySequence_Fast_GET_ITEM(item, i));
        return result;
    }
    PyObject *tensors = PyList_New(0), *others = PyList_New(0), *items = PyTuple_Pack(1, item), *done = NULL;
    if (tensors && others && items)
        done = PyObject_CallFunctionObjArgs(host.flatten, items, host.Tensor, tensors, others, NULL);
    int result = !done ? FAILED : PyList_GET_SIZE(tensors) ? UNUSUAL : DONE; /* a subclass, or tensors in a dict */
    for (Py_ssize_t i = 0; !result && i < PyList_GET_SIZE(others); i++)
        result = as_result(scalars_add(&event->others, PyList_GET_ITEM(others, i)));
    Py_XDECREF(done);
    Py_XDECREF(tensors);
    Py_XDECREF(others);
    Py_XDECREF(items);
    return result;
}

/* Find tensors, scalars and records, and whether all is usual. Nothing is noted yet. */
static int look(watcher_t *w, event_t *event, PyObject *args, PyObject *kwargs) {
    int result = DONE;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args) && !result; i++)
        result = flatten(event, PyTuple_GET_ITEM(args, i));
    PyObject *key, *value;
    for (Py_ssize_t at = 0; !result && kwargs && PyDict_Next(kwargs, &at, &key, &value);) result = flatten(event, value);
    for (Py_ssize_t i = 0; i < event->count && !result; i++) {
        int plain = is_plain(event->tensors[i]);
        if (plain <= 0) return plain < 0 ? FAILED : UNUSUAL;
        if (!(event->records[i] = record_of(w, event->tensors[i]))) return FAILED;
        if (yes(event->records[i], storage_at.uninitialised)) return UNUSUAL;
    }
    return result;
}

static int hash(PyObject *bytes, uint64_t *value) {
    PyObject *found = PyObject_CallOneArg(host.xxh3_64_intdigest, bytes);
    if (!found) return -1;
    *value = PyLong_AsUnsignedLongLong(found);
    Py_DECREF(found);
    return 0;
}

static PyObject *repr_of(PyObject *object) {
    PyObject *text = PyObject_Repr(object);
    PyObject *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
    Py_XDECREF(text);
    return bytes;
}

/* What is known of an event before its operator runs. */
static int before(watcher_t *w, PyObject *operator, event_t *event, PyObject *args) {
    long phase, thread = number(w->state, state_at.number);
    if (phase_and_place(w, event->tensors, event->count, &phase, &event->place)) return FAILED;
    event->flags = phase;
    PyObject *joined = PyBytes_FromStringAndSize(NULL, 16 * event->count);
    PyObject *written = yes(operator, operator_at.in_place) ? PyTuple_GET_ITEM(args, 0) : NULL;
    if (!joined) return FAILED;
    for (Py_ssize_t i = 0; i < event->count; i++) {
        PyObject *record = event->records[i];
        if (event->tensors[i] == written) event->written = record;
        long writer = number(record, storage_at.last_writer);
        if (writer != thread && writer >= 0) event->flags |= host.flag_foreign_write;
        PyObject *value = digest_input(w, event->tensors[i], record);
        if (!value || !PyBytes_CheckExact(value) || PyBytes_GET_SIZE(value) != 16) {
            if (value) PyErr_SetString(PyExc_TypeError, "a digest is 16 bytes");
            Py_XDECREF(value);
            Py_DECREF(joined);
            return FAILED;
        }
        memcpy(PyBytes_AS_STRING(joined) + 16 * i, PyBytes_AS_STRING(value), 16);
        Py_DECREF(value);
    }
    if (!event->count) event->flags |= host.flag_no_inputs;
    int failed = hash(joined, &event->inputs);
    Py_DECREF(joined);
    if (!failed) {
        uint64_t scalars = 0;
        PyObject *text = scalars_text(&event->others);
        failed = !text || (text != Py_None && hash(text, &scalars));
        event->scalars = (uint32_t)scalars;
        Py_XDECREF(text);
    }
    return failed ? FAILED : DONE;
}

static void little(unsigned char *out, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) out[i] = (unsigned char)(value >> (8 * i));
}

/* `TraceWriter.append`, which is called only where it will write: the others go straight to its deque. */
static int append(watcher_t *w, PyObject *writer, PyObject *packed) {
    if (w->writer != writer) {
        PyObject *pending = PyObject_GetAttr(writer, names.pending);
        PyObject *push = pending ? PyObject_GetAttr(pending, names.append) : NULL;
        if (!push) return Py_XDECREF(pending), -1;
        Py_INCREF(writer);
        Py_XSETREF(w->writer, writer);
        Py_XSETREF(w->pending, pending);
        Py_XSETREF(w->push, push);
    }
    Py_ssize_t waiting = PySequence_Size(w->pending);
    if (waiting < 0) return -1;
    PyObject *done = waiting + 1 < host.flush_events ? PyObject_CallOneArg(w->push, packed)
                                                     : PyObject_CallMethodOneArg(writer, names.append, packed);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Write the event as `format.EVENT` packs it. */
static int write_event(watcher_t *w, PyObject *writer, PyObject *operator, event_t *event, PyObject *digest) {
    long name = number(operator, operator_at.name_id), thread = number(w->state, state_at.number);
    if (thread < 0 || thread > 0xFFFF) return PyErr_SetString(PyExc_ValueError, "a thread without a number"), -1;
    if (name < 0) {
        PyObject *found = PyObject_CallMethodOneArg(writer, names.string, get(operator, operator_at.name));
        if (!found) return -1;
        put(operator, operator_at.name_id, found);
        name = PyLong_AsLong(found);
        Py_DECREF(found);
    }
    if (put_number(w->state, state_at.operator_count, number(w->state, state_at.operator_count) + 1)) return -1;
    PyObject *packed = PyBytes_FromStringAndSize(NULL, 40);
    if (!packed) return -1;
    unsigned char *out = (unsigned char *)PyBytes_AS_STRING(packed);
    little(out, (uint64_t)host.event_operator, 1);
    little(out + 1, (uint64_t)event->flags, 1);
    little(out + 2, (uint64_t)thread, 2);
    little(out + 4, (uint64_t)name, 4);
    little(out + 8, (uint64_t)event->place, 4);
    little(out + 12, event->scalars, 4);
    little(out + 16, event->inputs, 8);
    memcpy(out + 24, PyBytes_AS_STRING(digest), 16);
    int failed = append(w, writer, packed);
    Py_DECREF(packed);
    return failed;
}

/* The digest of a tuple or list of fresh tensors and None; NULL without an error where it is something else. */
static PyObject *digest_of_several(watcher_t *w, PyObject *out) {
    Py_ssize_t length = PySequence_Fast_GET_SIZE(out), filled = 0;
    PyObject *values = NULL, *text = NULL, *joined = NULL, *found = NULL, *count = PyLong_FromSsize_t(length);
    char parts[16 * MOST_TENSORS];
    if (!count || !(values = PyList_New(0)) || PyList_Append(values, count)) goto done;
    if (length > MOST_TENSORS) goto done;
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(out, i);
        if (item == Py_None) {
            if (PyList_Append(values, item)) goto done;
        } else if (!is_tensor(item) || is_plain(item) <= 0) {
            goto done;
        }
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(out, i);
        if (item == Py_None) continue;
        PyObject *value = digest_output(w, item);
        if (!value) goto done;
        memcpy(parts + 16 * filled++, PyBytes_AS_STRING(value), 16);
        Py_DECREF(value);
    }
    if (!(text = repr_of(values))) goto done;
    if (!(joined = PyBytes_FromStringAndSize(NULL, 16 * filled + PyBytes_GET_SIZE(text)))) goto done;
    memcpy(PyBytes_AS_STRING(joined), parts, (size_t)(16 * filled));
    memcpy(PyBytes_AS_STRING(joined) + 16 * filled, PyBytes_AS_STRING(text), (size_t)PyBytes_GET_SIZE(text));
    found = PyObject_CallOneArg(host.xxh3_128_digest, joined);
done:
    Py_XDECREF(values);
    Py_XDECREF(text);
    Py_XDECREF(joined);
    Py_XDECREF(count);
    return found;
}

/* What `_after` does in Python: for results that are unusual. */
static int after_slowly(watcher_t *w, PyObject *operator, event_t *event, PyObject *args, PyObject *kwargs,
                        PyObject *out) {
    PyObject *known = Py_BuildValue("(llKI)", event->flags, event->place, (unsigned long long)event->inputs,
                                    (unsigned)event->scalars);
    PyObject *record = event->written ? event->written : Py_None, *done = NULL;
    if (known && !PyObject_SetAttr((PyObject *)w, names.written_record, record))
        done = PyObject_CallMethodObjArgs((PyObject *)w, names.after, operator, args, kwargs ? kwargs : Py_None, out, w->state,
                                          known, NULL);
    Py_XDECREF(known);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* Digest what came out, and write the event. */
static int after(watcher_t *w, PyObject *operator, event_t *event, PyObject *args, PyObject *kwargs, PyObject *out) {
    PyObject *digest = NULL;
    if (yes(operator, operator_at.writes_nothing)) {
        if ((PyObject *)Py_TYPE(out) == host.Tensor) {
            int plain = is_plain(out);
            if (plain < 0) return -1;
            if (plain && !(digest = digest_output(w, out))) return -1;
        } else if (PyTuple_CheckExact(out) || PyList_CheckExact(out)) {
            digest = digest_of_several(w, out);
            if (!digest && PyErr_Occurred()) return -1;
        }
    } else if (yes(operator, operator_at.in_place) && out == PyTuple_GET_ITEM(args, 0) && event->written) {
        if (!(digest = digest_written(w, out, event->written))) return -1;
    }
    if (!digest) return after_slowly(w, operator, event, args, kwargs, out);
    PyObject *writer = writer_of(w);
    int failed = !writer || (writer != Py_None && write_event(w, writer, operator, event, digest));
    Py_XDECREF(writer);
    Py_DECREF(digest);
    return failed ? -1 : 0;
}

/* The recorder failed: the program goes on, the trace ends. -1 where the error is not ours to hold. */
static int failed(watcher_t *w, PyObject *operator) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    PyObject *done = PyObject_CallMethodObjArgs((PyObject *)w, names.failed, operator, error, NULL);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int flag(PyObject *object, PyObject *name) {
    PyObject *found = PyObject_GetAttr(object, name);
    if (!found) return -1;
    int answer = PyObject_IsTrue(found);
    Py_DECREF(found);
    return answer;
}

/* The operator itself where it may be recorded quickly; NULL for the slow way. Borrowed. */
static PyObject *usual_operator(watcher_t *w, PyObject *func) {
    PyObject *key = PyLong_FromVoidPtr(func), *found = NULL;
    if (key) found = PyDict_GetItemWithError(w->operators, key);
    Py_XDECREF(key);
    if (!found || yes(found, operator_at.allocates) || yes(found, operator_at.overwrites) || yes(found, operator_at.random))
        return NULL;
    if (number(w->state, state_at.inside_samerun)) return NULL;
    PyObject *watched = PyObject_CallNoArgs(host.function_mode); /* a mode that would see us read attributes */
    Py_XDECREF(watched);                                         /* True and False are never freed */
    return watched == Py_False ? found : NULL;
}

/* __torch_dispatch__(func, types, args=(), kwargs=None) */
PyObject *dispatch(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    watcher_t *w = (watcher_t *)self;
    event_t event;
    if (!w->slow) return PyErr_SetString(PyExc_RuntimeError, "attach comes first"), NULL;
    if (count < 3 || count > 4 || !PyTuple_CheckExact(given[2])) return PyObject_Vectorcall(w->slow, given, (size_t)count, NULL);
    PyObject *args = given[2], *kwargs = count == 4 && PyDict_Check(given[3]) ? given[3] : NULL;
    if (kwargs && !PyDict_GET_SIZE(kwargs)) kwargs = NULL;
    PyObject *operator = usual_operator(w, given[0]);
    int stopped = operator ? flag(w->recorder, names.stopped) : 0;
    int recording = operator && !stopped ? flag(w->recorder, names.recording) : 0;
    if (stopped < 0 || recording < 0) return NULL;
    if (!operator || stopped || !recording) {
        if (PyErr_Occurred()) return NULL;
        return PyObject_Vectorcall(w->slow, given, (size_t)count, NULL);
    }
    PyObject *call = get(operator, operator_at.call);
    if (yes(operator, operator_at.silent)) {
        if (note_silent(w) && failed(w, operator)) return NULL;
        return PyObject_Call(call, args, kwargs);
    }
    event.count = 0;
    event.written = NULL;
    scalars_begin(&event.others);
    event.scalars = 0;
    PyObject *out = NULL;
    int result = look(w, &event, args, kwargs);
    if (result == UNUSUAL) {
        clear(&event);
        return PyObject_Vectorcall(w->slow, given, (size_t)count, NULL);
    }
    if (result == DONE) result = before(w, operator, &event, args);
    if (result == DONE) {
        out = PyObject_Call(call, args, kwargs);
        if (out && after(w, operator, &event, args, kwargs, out) && failed(w, operator)) Py_CLEAR(out);
    } else if (!failed(w, operator)) {
        out = PyObject_Call(call, args, kwargs);
    }
    clear(&event);
    return out;
}
