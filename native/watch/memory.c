/* What is known of a tensor's memory: the usual cases of `record/digests/storages.py`, which says why. */
#include "watch.h"

/* The record of some memory that is new. */
static PyObject *add(watcher_t *w, PyObject *storage, PyObject *key) {
    PyObject *entry = NULL, *limit = NULL, *known = PyDict_New(), *weak = weak_reference(storage);
    if (!known || !weak) goto failed;
    PyTypeObject *type = (PyTypeObject *)host.Storage;
    if (!(entry = type->tp_alloc(type, 0))) goto failed;
    put(entry, storage_at.weak, weak);
    put(entry, storage_at.cpu, Py_True);
    put(entry, storage_at.known, known);
    put(entry, storage_at.content, Py_None);
    put(entry, storage_at.ours, Py_True);
    put(entry, storage_at.uninitialised, Py_False);
    if (put_number(entry, storage_at.place, 0) || put_number(entry, storage_at.writer, -1) ||
        put_number(entry, storage_at.read_at, -1) || PyDict_SetItem(w->entries, key, entry))
        goto failed;
    if (!(limit = PyObject_GetAttr(w->storages, names.purge_at))) goto failed;
    if (PyDict_GET_SIZE(w->entries) > PyLong_AsLong(limit)) {
        PyObject *done = PyObject_CallMethodNoArgs(w->storages, names.purge);
        if (!done) goto failed;
        Py_DECREF(done);
    }
    goto done;
failed:
    Py_CLEAR(entry);
done:
    Py_XDECREF(known);
    Py_XDECREF(weak);
    Py_XDECREF(limit);
    return entry;
}

PyObject *entry_of(watcher_t *w, PyObject *tensor) {
    PyObject *entry = NULL, *storage = storage_of(tensor);
    PyObject *key = storage ? key_of(storage) : NULL;
    if (key && (entry = PyDict_GetItemWithError(w->entries, key))) Py_INCREF(entry);
    Py_XDECREF(key);
    Py_XDECREF(storage);
    if (entry || PyErr_Occurred()) return entry;
    return PyObject_CallMethodOneArg(w->storages, names.of, tensor);
}

/* What stands for a view that is not contiguous: the content of its memory, and where in it the view lies. */
static PyObject *value_of_view(PyObject *tensor, PyObject *content, PyObject *known) {
    PyObject *key = strided_geometry(tensor), *text = NULL, *bytes = NULL, *found = NULL;
    if (!key) return NULL;
    if ((found = PyDict_GetItemWithError(known, key))) {
        Py_INCREF(found);
    } else if (!PyErr_Occurred() && (text = PyObject_Str(key)) && (bytes = PyUnicode_AsUTF8String(text))) {
        PyObject *joined = content;
        Py_INCREF(joined);
        PyBytes_Concat(&joined, bytes);
        if (joined && (found = PyObject_CallOneArg(host.xxh3_128_digest, joined)) && PyDict_SetItem(known, key, found))
            Py_CLEAR(found);
        Py_XDECREF(joined);
    }
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_DECREF(key);
    return found;
}

static PyObject *value_of_dense(PyObject *tensor, PyObject *known) {
    PyObject *key = geometry(tensor);
    if (!key) return NULL;
    PyObject *found = PyDict_GetItemWithError(known, key);
    if (found) {
        Py_INCREF(found);
    } else if (!PyErr_Occurred() && (found = dense(tensor, key, known)) && PyDict_SetItem(known, key, found)) {
        Py_CLEAR(found);
    }
    Py_DECREF(key);
    return found;
}

PyObject *value_of(watcher_t *w, PyObject *tensor, PyObject *entry) {
    if (yes(entry, storage_at.ours) && yes(entry, storage_at.cpu)) {
        PyObject *known = get(entry, storage_at.known), *content = get(entry, storage_at.content);
        int contiguous = is_dense(tensor), lazy = contiguous ? 0 : is_lazy(tensor);
        if (contiguous < 0 || lazy < 0) return NULL;
        if (contiguous) return value_of_dense(tensor, known);
        if (!lazy && content != Py_None && !yes(entry, storage_at.uninitialised)) return value_of_view(tensor, content, known);
    }
    if (!yes(entry, storage_at.ours) && yes(entry, storage_at.cpu)) {
        /* It may change behind torch's back: read at every use while it is small (an optimizer's counters, mostly). */
        int small = is_small(tensor);
        if (small > 0) small = is_dense(tensor);
        if (small) return small < 0 ? NULL : read_dense(tensor);
    }
    PyObject *arguments[] = {w->storages, tensor, entry};
    return PyObject_VectorcallMethod(names.value, arguments, 3, NULL);
}

/* The digest of an operator's fresh output, noted. */
static PyObject *made(watcher_t *w, PyObject *tensor, PyObject *entry) {
    int contiguous = is_dense(tensor);
    PyObject *thread = get(w->state, state_at.number);
    if (contiguous < 0) return NULL;
    if (!contiguous) {
        PyObject *arguments[] = {w->storages, tensor, entry, thread};
        return PyObject_VectorcallMethod(names.made, arguments, 4, NULL);
    }
    PyObject *key = geometry(tensor);
    PyObject *known = get(entry, storage_at.known), *found = key ? dense(tensor, key, known) : NULL;
    if (found && PyDict_SetItem(known, key, found)) Py_CLEAR(found);
    Py_XDECREF(key);
    if (!found) return NULL;
    put(entry, storage_at.writer, thread);
    put(entry, storage_at.content, found);
    return found;
}

PyObject *result_of(watcher_t *w, PyObject *tensor) {
    PyObject *entry = NULL, *found = NULL, *storage = storage_of(tensor);
    PyObject *key = storage ? key_of(storage) : NULL;
    if (key) {
        if ((entry = PyDict_GetItemWithError(w->entries, key))) {
            Py_INCREF(entry);
            found = value_of(w, tensor, entry);
        } else if (!PyErr_Occurred() && (entry = add(w, storage, key))) {
            found = made(w, tensor, entry);
        }
    }
    Py_XDECREF(entry);
    Py_XDECREF(key);
    Py_XDECREF(storage);
    return found;
}

PyObject *written_to(watcher_t *w, PyObject *tensor, PyObject *entry) {
    PyObject *thread = get(w->state, state_at.number);
    PyObject *storage = storage_of(tensor);
    int usual = storage ? fills(tensor, storage) : -1;
    Py_XDECREF(storage);
    if (usual > 0 && yes(entry, storage_at.cpu)) usual = is_dense(tensor);
    if (usual < 0) return NULL;
    if (!usual || !yes(entry, storage_at.cpu)) {
        PyObject *arguments[] = {w->storages, tensor, entry, thread};
        return PyObject_VectorcallMethod(names.written, arguments, 4, NULL);
    }
    PyObject *known = get(entry, storage_at.known), *key = geometry(tensor);
    PyDict_Clear(known);
    PyObject *found = key ? dense(tensor, key, known) : NULL;
    if (found && PyDict_SetItem(known, key, found)) Py_CLEAR(found);
    Py_XDECREF(key);
    if (!found) return NULL;
    put(entry, storage_at.writer, thread);
    put(entry, storage_at.content, found);
    put(entry, storage_at.uninitialised, Py_False);
    return found;
}
