/* What is known of a tensor's memory: the usual cases of `record/digests/storages.py`, which says why. */
#include "watch.h"

/* The record of some memory that is new. */
static PyObject *add(watcher_t *w, PyObject *storage, PyObject *key) {
    PyObject *record = NULL, *limit = NULL, *known = PyDict_New(), *weak = weak_reference(storage);
    if (!known || !weak) goto failed;
    PyTypeObject *type = (PyTypeObject *)host.StorageRecord;
    if (!(record = type->tp_alloc(type, 0))) goto failed;
    put(record, storage_at.weak_ref, weak);
    put(record, storage_at.on_cpu, Py_True);
    put(record, storage_at.view_digests, known);
    put(record, storage_at.content_digest, Py_None);
    put(record, storage_at.trusted, Py_True);
    put(record, storage_at.uninitialised, Py_False);
    if (put_number(record, storage_at.made_at, 0) || put_number(record, storage_at.last_writer, -1) ||
        put_number(record, storage_at.read_epoch, -1) || PyDict_SetItem(w->records, key, record))
        goto failed;
    if (!(limit = PyObject_GetAttr(w->storages, names.drop_above))) goto failed;
    if (PyDict_GET_SIZE(w->records) > PyLong_AsLong(limit)) {
        PyObject *done = PyObject_CallMethodNoArgs(w->storages, names.drop_expired);
        if (!done) goto failed;
        Py_DECREF(done);
    }
    goto done;
failed:
    Py_CLEAR(record);
done:
    Py_XDECREF(known);
    Py_XDECREF(weak);
    Py_XDECREF(limit);
    return record;
}

PyObject *record_of(watcher_t *w, PyObject *tensor) {
    PyObject *record = NULL, *storage = storage_of(tensor);
    PyObject *key = storage ? key_of(storage) : NULL;
    if (key && (record = PyDict_GetItemWithError(w->records, key))) Py_INCREF(record);
    Py_XDECREF(key);
    Py_XDECREF(storage);
    if (record || PyErr_Occurred()) return record;
    return PyObject_CallMethodOneArg(w->storages, names.record_of, tensor);
}

/* What stands for a view that is not contiguous: the content of its memory, and where in it the view lies. */
static PyObject *digest_view(PyObject *tensor, PyObject *content, PyObject *known) {
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

static PyObject *digest_dense_view(PyObject *tensor, PyObject *known) {
    PyObject *key = geometry(tensor);
    if (!key) return NULL;
    PyObject *found = PyDict_GetItemWithError(known, key);
    if (found) {
        Py_INCREF(found);
    } else if (!PyErr_Occurred() && (found = digest_dense(tensor, key, known)) && PyDict_SetItem(known, key, found)) {
        Py_CLEAR(found);
    }
    Py_DECREF(key);
    return found;
}

PyObject *digest_input(watcher_t *w, PyObject *tensor, PyObject *record) {
    if (yes(record, storage_at.trusted) && yes(record, storage_at.on_cpu)) {
        PyObject *known = get(record, storage_at.view_digests), *content = get(record, storage_at.content_digest);
        int contiguous = is_dense(tensor), lazy = contiguous ? 0 : is_lazy(tensor);
        if (contiguous < 0 || lazy < 0) return NULL;
        if (contiguous) return digest_dense_view(tensor, known);
        if (!lazy && content != Py_None && !yes(record, storage_at.uninitialised)) return digest_view(tensor, content, known);
    }
    if (!yes(record, storage_at.trusted) && yes(record, storage_at.on_cpu)) {
        /* It may change behind torch's back: read at every use while it is small (an optimizer's counters, mostly). */
        int small = is_small(tensor);
        if (small > 0) small = is_dense(tensor);
        if (small) return small < 0 ? NULL : digest_dense_unknown(tensor);
    }
    PyObject *arguments[] = {w->storages, tensor, record};
    return PyObject_VectorcallMethod(names.digest_input, arguments, 3, NULL);
}

/* The digest of an operator's fresh output, noted. */
static PyObject *digest_new_memory(watcher_t *w, PyObject *tensor, PyObject *record) {
    int contiguous = is_dense(tensor);
    PyObject *thread = get(w->state, state_at.number);
    if (contiguous < 0) return NULL;
    if (!contiguous) {
        PyObject *arguments[] = {w->storages, tensor, record, thread};
        return PyObject_VectorcallMethod(names.digest_new_memory, arguments, 4, NULL);
    }
    PyObject *key = geometry(tensor);
    PyObject *known = get(record, storage_at.view_digests), *found = key ? digest_dense(tensor, key, known) : NULL;
    if (found && PyDict_SetItem(known, key, found)) Py_CLEAR(found);
    Py_XDECREF(key);
    if (!found) return NULL;
    put(record, storage_at.last_writer, thread);
    put(record, storage_at.content_digest, found);
    return found;
}

PyObject *digest_output(watcher_t *w, PyObject *tensor) {
    PyObject *record = NULL, *found = NULL, *storage = storage_of(tensor);
    PyObject *key = storage ? key_of(storage) : NULL;
    if (key) {
        if ((record = PyDict_GetItemWithError(w->records, key))) {
            Py_INCREF(record);
            found = digest_input(w, tensor, record);
        } else if (!PyErr_Occurred() && (record = add(w, storage, key))) {
            found = digest_new_memory(w, tensor, record);
        }
    }
    Py_XDECREF(record);
    Py_XDECREF(key);
    Py_XDECREF(storage);
    return found;
}

PyObject *digest_written(watcher_t *w, PyObject *tensor, PyObject *record) {
    PyObject *thread = get(w->state, state_at.number);
    PyObject *storage = storage_of(tensor);
    int usual = storage ? fills(tensor, storage) : -1;
    Py_XDECREF(storage);
    if (usual > 0 && yes(record, storage_at.on_cpu)) usual = is_dense(tensor);
    if (usual < 0) return NULL;
    if (!usual || !yes(record, storage_at.on_cpu)) {
        PyObject *arguments[] = {w->storages, tensor, record, thread};
        return PyObject_VectorcallMethod(names.digest_written, arguments, 4, NULL);
    }
    PyObject *known = get(record, storage_at.view_digests), *key = geometry(tensor);
    PyDict_Clear(known);
    PyObject *found = key ? digest_dense(tensor, key, known) : NULL;
    if (found && PyDict_SetItem(known, key, found)) Py_CLEAR(found);
    Py_XDECREF(key);
    if (!found) return NULL;
    put(record, storage_at.last_writer, thread);
    put(record, storage_at.content_digest, found);
    put(record, storage_at.uninitialised, Py_False);
    return found;
}
