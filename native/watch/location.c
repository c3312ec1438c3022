/* Where in the program an operator stands: `OperatorMode._find_phase_and_location`. */
#include "watch.h"

#include <frameobject.h>

/* A number that a function without arguments gives. */
static watch_status call_returning_long(PyObject *function, long *value) {
    PyObject *found = PyObject_CallNoArgs(function);
    if (!found) return STATUS_ERROR;
    *value = PyLong_AsLong(found);
    Py_DECREF(found);
    return *value == -1 && PyErr_Occurred() ? STATUS_ERROR : STATUS_DONE;
}

/* Is this code the user's? */
static watch_status is_user_code(PyObject *code) {
    PyObject *key = PyLong_FromVoidPtr(code);
    if (!key) return STATUS_ERROR;
    PyObject *kind = PyDict_GetItemWithError(host.code_kinds, key);
    Py_DECREF(key);
    if (kind == host.user_kind) return STATUS_YES;
    if (kind) return (watch_status)PyObject_RichCompareBool(kind, host.user_kind, Py_EQ);
    if (PyErr_Occurred() || !(kind = PyObject_CallOneArg(host.classify_code, code))) return STATUS_ERROR;
    watch_status answer = (watch_status)PyObject_RichCompareBool(kind, host.user_kind, Py_EQ);
    Py_DECREF(kind);
    return answer;
}

/* The writer of the trace; None where recording is over. */
PyObject *get_or_open_trace_writer(watcher_t *watcher) {
    PyObject *writer = PyObject_GetAttr(watcher->recorder, names.writer);
    if (writer != Py_None) return writer;
    Py_DECREF(writer);
    return PyObject_CallMethodNoArgs(watcher->recorder, names.open_writer);
}

/* The number of a line that is not in `location_ids` yet. */
static PyObject *intern_location_id(watcher_t *watcher, PyObject *code, PyObject *line, PyObject *module) {
    PyObject *writer = get_or_open_trace_writer(watcher), *file = NULL, *found = NULL;
    if (!writer) return NULL;
    if (writer == Py_None) {
        Py_DECREF(writer);
        return PyLong_FromLong(0);
    }
    if ((file = PyObject_GetAttr(code, names.co_filename)))
        found = PyObject_CallMethodObjArgs(writer, names.intern_location, file, line, module, NULL);
    Py_XDECREF(file);
    Py_DECREF(writer);
    return found;
}

static watch_status location_id_of_frame(watcher_t *watcher, PyFrameObject *frame, PyObject *code, long *location_id) {
    PyObject *module = borrow_slot_value(watcher->state, state_at.module), *found = NULL, *key = NULL;
    PyObject *id = PyLong_FromVoidPtr(code), *line = PyLong_FromLong(PyFrame_GetLineNumber(frame));
    if (id && line && (key = PyTuple_Pack(3, id, line, module))) {
        if ((found = PyDict_GetItemWithError(watcher->location_ids, key))) {
            Py_INCREF(found);
        } else if (!PyErr_Occurred() && (found = intern_location_id(watcher, code, line, module))) {
            if (PyDict_SetItem(watcher->location_ids, key, found)) Py_CLEAR(found);
        }
    }
    if (found) *location_id = PyLong_AsLong(found);
    watch_status status = found ? STATUS_DONE : STATUS_ERROR;
    Py_XDECREF(found);
    Py_XDECREF(key);
    Py_XDECREF(id);
    Py_XDECREF(line);
    return status;
}

/* Number of the user's present line; 0 where there is none. */
static watch_status find_user_location_id(watcher_t *watcher, long *location_id) {
    PyFrameObject *frame = PyEval_GetFrame();
    watch_status status = STATUS_DONE;
    *location_id = 0;
    Py_XINCREF(frame);
    while (frame) {
        PyObject *code = (PyObject *)PyFrame_GetCode(frame);
        watch_status users = is_user_code(code);
        if (users > 0) status = location_id_of_frame(watcher, frame, code, location_id);
        Py_DECREF(code);
        PyFrameObject *back = users ? NULL : PyFrame_GetBack(frame);
        Py_DECREF(frame);
        if (users < 0) return STATUS_ERROR;
        frame = back;
    }
    return status;
}

/* Remember which line made the autograd nodes that are new: their backward belongs to it. */
static watch_status record_new_node_locations(watcher_t *watcher, long next_sequence_nr, long location_id) {
    PyObject *nodes = borrow_slot_value(watcher->state, state_at.node_location_ids),
             *value = PyLong_FromLong(location_id);
    long from = slot_number(watcher->state, state_at.last_sequence);
    if (!value) return STATUS_ERROR;
    for (long at = from > next_sequence_nr - 64 ? from : next_sequence_nr - 64; at < next_sequence_nr; at++) {
        PyObject *key = PyLong_FromLong(at & host.node_ring);
        bool failed = !key || PyDict_SetItem(nodes, key, value) < 0;
        Py_XDECREF(key);
        if (failed) {
            Py_DECREF(value);
            return STATUS_ERROR;
        }
    }
    Py_DECREF(value);
    return set_slot_number(watcher->state, state_at.last_sequence, next_sequence_nr);
}

watch_status record_new_forward_nodes_at_user_line(watcher_t *watcher) {
    long now, task, location_id;
    if (call_returning_long(host.next_sequence, &now) < 0) return STATUS_ERROR;
    if (now == slot_number(watcher->state, state_at.last_sequence)) return STATUS_DONE;
    if (call_returning_long(host.graph_task, &task) < 0) return STATUS_ERROR;
    if (task != -1) return STATUS_DONE;
    return find_user_location_id(watcher, &location_id) < 0 ? STATUS_ERROR
                                                            : record_new_node_locations(watcher, now, location_id);
}

/* The line whose operator made the autograd node that runs; 0 where it is not known. */
static watch_status location_id_of_running_node(watcher_t *watcher, long *location_id) {
    PyObject *key = NULL, *found = NULL, *count = NULL, *node = PyObject_CallNoArgs(host.current_node);
    *location_id = 0;
    if (!node) return STATUS_ERROR;
    if (node != Py_None && (count = PyObject_CallMethodNoArgs(node, names.sequence_nr)) &&
        (key = PyLong_FromLong((long)(PyLong_AsUnsignedLongLongMask(count) & (unsigned long long)host.node_ring))) &&
        (found = PyDict_GetItemWithError(borrow_slot_value(watcher->state, state_at.node_location_ids), key)))
        *location_id = PyLong_AsLong(found);
    Py_XDECREF(key);
    Py_XDECREF(count);
    Py_DECREF(node);
    return PyErr_Occurred() ? STATUS_ERROR : STATUS_DONE;
}

static watch_status is_grad_enabled(void) {
    PyObject *found = PyObject_CallNoArgs(host.grad_enabled);
    if (!found) return STATUS_ERROR;
    Py_DECREF(found); /* True and False are never freed */
    return found == Py_True ? STATUS_YES : STATUS_NO;
}

watch_status find_phase_and_location_noting_new_nodes(watcher_t *watcher, PyObject **tensors, Py_ssize_t count,
                                                      long *phase, long *location_id) {
    long task, now, known_phase = slot_number(watcher->state, state_at.phase);
    if (call_returning_long(host.graph_task, &task) < 0) return STATUS_ERROR;
    if (task != -1) { /* autograd runs: the operator belongs to the line that made the node */
        *phase = host.phase_backward;
        if (location_id_of_running_node(watcher, location_id) < 0) return STATUS_ERROR;
        return *location_id ? STATUS_DONE : find_user_location_id(watcher, location_id);
    }
    if (known_phase == host.phase_optimizer &&
        (*location_id = slot_number(watcher->state, state_at.step_location_id))) {
        watch_status enabled = is_grad_enabled();
        if (enabled < 0) return STATUS_ERROR;
        *phase = known_phase;
        if (!enabled) return STATUS_DONE;
    }
    if (find_user_location_id(watcher, location_id) < 0 || call_returning_long(host.next_sequence, &now) < 0)
        return STATUS_ERROR;
    if (now != slot_number(watcher->state, state_at.last_sequence) &&
        record_new_node_locations(watcher, now, *location_id) < 0)
        return STATUS_ERROR;
    *phase = known_phase;
    if (known_phase >= 0) return STATUS_DONE;
    *phase = host.phase_between;
    if (PyList_GET_SIZE(borrow_slot_value(watcher->state, state_at.outer_modules))) {
        *phase = host.phase_forward;
        return STATUS_DONE;
    }
    watch_status enabled = is_grad_enabled();
    for (Py_ssize_t i = 0; enabled > 0 && i < count; i++) {
        watch_status needs_grad = requires_grad(tensors[i]);
        if (needs_grad < 0) return STATUS_ERROR;
        if (needs_grad) {
            *phase = host.phase_forward;
            return STATUS_DONE;
        }
    }
    return enabled < 0 ? STATUS_ERROR : STATUS_DONE;
}
