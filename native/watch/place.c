/* Where in the program an operator stands: `OperatorMode._phase_and_place`. */
#include "watch.h"

#include <frameobject.h>

/* A number that a function without arguments gives. */
static int ask(PyObject *function, long *value) {
    PyObject *found = PyObject_CallNoArgs(function);
    if (!found) return -1;
    *value = PyLong_AsLong(found);
    Py_DECREF(found);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Is this code the user's? */
static int is_users(PyObject *code) {
    PyObject *key = PyLong_FromVoidPtr(code);
    if (!key) return -1;
    PyObject *kind = PyDict_GetItemWithError(host.kinds, key);
    Py_DECREF(key);
    if (kind) return kind == host.user_kind || PyObject_RichCompareBool(kind, host.user_kind, Py_EQ);
    if (PyErr_Occurred() || !(kind = PyObject_CallOneArg(host.kind_of, code))) return -1;
    int answer = PyObject_RichCompareBool(kind, host.user_kind, Py_EQ);
    Py_DECREF(kind);
    return answer;
}

/* The writer of the trace; None where recording is over. */
PyObject *writer_of(watcher_t *w) {
    PyObject *writer = PyObject_GetAttr(w->recorder, names.writer);
    if (writer != Py_None) return writer;
    Py_DECREF(writer);
    return PyObject_CallMethodNoArgs(w->recorder, names.open_writer);
}

/* The number of a line that is not in `places` yet. */
static PyObject *new_place(watcher_t *w, PyObject *code, PyObject *line, PyObject *module) {
    PyObject *writer = writer_of(w), *file = NULL, *found = NULL;
    if (!writer) return NULL;
    if (writer == Py_None) {
        Py_DECREF(writer);
        return PyLong_FromLong(0);
    }
    if ((file = PyObject_GetAttr(code, names.co_filename)))
        found = PyObject_CallMethodObjArgs(writer, names.place, file, line, module, NULL);
    Py_XDECREF(file);
    Py_DECREF(writer);
    return found;
}

static int place_at(watcher_t *w, PyFrameObject *frame, PyObject *code, long *place) {
    PyObject *module = get(w->state, state_at.module), *found = NULL, *key = NULL;
    PyObject *id = PyLong_FromVoidPtr(code), *line = PyLong_FromLong(PyFrame_GetLineNumber(frame));
    if (id && line && (key = PyTuple_Pack(3, id, line, module))) {
        if ((found = PyDict_GetItemWithError(w->places, key))) {
            Py_INCREF(found);
        } else if (!PyErr_Occurred() && (found = new_place(w, code, line, module))) {
            if (PyDict_SetItem(w->places, key, found)) Py_CLEAR(found);
        }
    }
    if (found) *place = PyLong_AsLong(found);
    int failed = found ? 0 : -1;
    Py_XDECREF(found);
    Py_XDECREF(key);
    Py_XDECREF(id);
    Py_XDECREF(line);
    return failed;
}

/* Number of the user's present line; 0 where there is none. */
static int present_place(watcher_t *w, long *place) {
    PyFrameObject *frame = PyEval_GetFrame();
    int result = 0;
    *place = 0;
    Py_XINCREF(frame);
    while (frame) {
        PyObject *code = (PyObject *)PyFrame_GetCode(frame);
        int users = is_users(code);
        if (users > 0) result = place_at(w, frame, code, place);
        Py_DECREF(code);
        PyFrameObject *back = users ? NULL : PyFrame_GetBack(frame);
        Py_DECREF(frame);
        if (users < 0) return -1;
        frame = back;
    }
    return result;
}

/* Remember which line made the autograd nodes that are new: their backward belongs to it. */
static int note_nodes(watcher_t *w, long now, long place) {
    PyObject *nodes = get(w->state, state_at.node_places), *value = PyLong_FromLong(place);
    long from = number(w->state, state_at.last_sequence);
    if (!value) return -1;
    for (long at = from > now - 64 ? from : now - 64; at < now; at++) {
        PyObject *key = PyLong_FromLong(at & host.node_ring);
        int failed = !key || PyDict_SetItem(nodes, key, value);
        Py_XDECREF(key);
        if (failed) {
            Py_DECREF(value);
            return -1;
        }
    }
    Py_DECREF(value);
    return put_number(w->state, state_at.last_sequence, now);
}

int note_silent(watcher_t *w) {
    long now, task, place;
    if (ask(host.next_sequence, &now)) return -1;
    if (now == number(w->state, state_at.last_sequence)) return 0;
    if (ask(host.graph_task, &task)) return -1;
    if (task != -1) return 0;
    return present_place(w, &place) ? -1 : note_nodes(w, now, place);
}

/* The line whose operator made the autograd node that runs; 0 where it is not known. */
static int place_of_node(watcher_t *w, long *place) {
    PyObject *key = NULL, *found = NULL, *count = NULL, *node = PyObject_CallNoArgs(host.current_node);
    *place = 0;
    if (!node) return -1;
    if (node != Py_None && (count = PyObject_CallMethodNoArgs(node, names.sequence_nr)) &&
        (key = PyLong_FromLong((long)(PyLong_AsUnsignedLongLongMask(count) & (unsigned long long)host.node_ring))) &&
        (found = PyDict_GetItemWithError(get(w->state, state_at.node_places), key)))
        *place = PyLong_AsLong(found);
    Py_XDECREF(key);
    Py_XDECREF(count);
    Py_DECREF(node);
    return PyErr_Occurred() ? -1 : 0;
}

static int grad_enabled(void) {
    PyObject *found = PyObject_CallNoArgs(host.grad_enabled);
    if (!found) return -1;
    Py_DECREF(found); /* True and False are never freed */
    return found == Py_True;
}

int phase_and_place(watcher_t *w, PyObject **tensors, Py_ssize_t count, long *phase, long *place) {
    long task, now, known = number(w->state, state_at.phase);
    if (ask(host.graph_task, &task)) return -1;
    if (task != -1) {
        *phase = host.phase_backward;
        if (place_of_node(w, place)) return -1;
        return *place ? 0 : present_place(w, place);
    }
    if (known == host.phase_optimizer && (*place = number(w->state, state_at.step_place))) {
        int enabled = grad_enabled();
        if (enabled < 0) return -1;
        *phase = known;
        if (!enabled) return 0;
    }
    if (present_place(w, place) || ask(host.next_sequence, &now)) return -1;
    if (now != number(w->state, state_at.last_sequence) && note_nodes(w, now, *place)) return -1;
    *phase = known;
    if (known >= 0) return 0;
    *phase = host.phase_between;
    if (PyList_GET_SIZE(get(w->state, state_at.outer_modules))) {
        *phase = host.phase_forward;
        return 0;
    }
    int enabled = grad_enabled();
    for (Py_ssize_t i = 0; enabled > 0 && i < count; i++) {
        int needs = requires_grad(tensors[i]);
        if (needs < 0) return -1;
        if (needs) {
            *phase = host.phase_forward;
            return 0;
        }
    }
    return enabled < 0 ? -1 : 0;
}
