/* What is known of a tensor's memory: the usual cases of `record/digests/storages.py`, which says why.
 * Unusual ones call the method of the same name there, so that both ways share every record. */
#include "watch.h"

/* Make the record of memory that has none yet. */
static PyObject *add_trusted_cpu_storage_record(watcher_t *watcher, PyObject *storage, PyObject *storage_key) {
    PyObject *record = NULL, *limit = NULL, *known = PyDict_New(), *weak = storage_weak_ref(storage);
    if (!known || !weak) goto failed;
    PyTypeObject *type = (PyTypeObject *)host.StorageRecord;
    if (!(record = type->tp_alloc(type, 0))) goto failed;
    set_slot(record, storage_at.weak_ref, weak);
    set_slot(record, storage_at.on_cpu, Py_True);
    set_slot(record, storage_at.view_digests, known);
    set_slot(record, storage_at.content_digest, Py_None);
    set_slot(record, storage_at.trusted, Py_True);
    set_slot(record, storage_at.uninitialised, Py_False);
    if (set_slot_number(record, storage_at.made_at, 0) < 0 || set_slot_number(record, storage_at.last_writer, -1) < 0 ||
        set_slot_number(record, storage_at.read_epoch, -1) < 0 ||
        PyDict_SetItem(watcher->records, storage_key, record) < 0)
        goto failed;
    if (!(limit = PyObject_GetAttr(watcher->storages, names.drop_above))) goto failed;
    if (PyDict_GET_SIZE(watcher->records) > PyLong_AsLong(limit)) {
        PyObject *done = PyObject_CallMethodNoArgs(watcher->storages, names.drop_expired);
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

PyObject *find_or_add_record(watcher_t *watcher, PyObject *tensor) {
    PyObject *record = NULL, *storage = untyped_storage_of(tensor);
    PyObject *key = storage ? storage_key_of(storage) : NULL;
    if (key && (record = PyDict_GetItemWithError(watcher->records, key))) Py_INCREF(record);
    Py_XDECREF(key);
    Py_XDECREF(storage);
    if (record || PyErr_Occurred()) return record;
    return PyObject_CallMethodOneArg(watcher->storages, names.find_or_add_record, tensor);
}

/* The digest of a view that is not contiguous: of `content_digest`, its memory's, and the view's geometry, without a
 * copy. */
static PyObject *digest_view_from_content_and_geometry(PyObject *tensor, PyObject *content_digest,
                                                       PyObject *digest_cache) {
    PyObject *view_key = offset_shape_stride_dtype_key(tensor), *text = NULL, *bytes = NULL, *found = NULL;
    if (!view_key) return NULL;
    if ((found = PyDict_GetItemWithError(digest_cache, view_key))) {
        Py_INCREF(found);
    } else if (!PyErr_Occurred() && (text = PyObject_Str(view_key)) && (bytes = PyUnicode_AsUTF8String(text))) {
        PyObject *joined = content_digest;
        Py_INCREF(joined);
        PyBytes_Concat(&joined, bytes);
        if (joined && (found = PyObject_CallOneArg(host.xxh3_128_digest, joined)) &&
            PyDict_SetItem(digest_cache, view_key, found))
            Py_CLEAR(found);
        Py_XDECREF(joined);
    }
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_DECREF(view_key);
    return found;
}

static PyObject *digest_contiguous_view_cached(PyObject *tensor, PyObject *digest_cache) {
    PyObject *view_key = offset_shape_dtype_key(tensor);
    if (!view_key) return NULL;
    PyObject *found = PyDict_GetItemWithError(digest_cache, view_key);
    if (found) {
        Py_INCREF(found);
    } else if (!PyErr_Occurred() && (found = digest_contiguous(tensor, view_key, digest_cache)) &&
               PyDict_SetItem(digest_cache, view_key, found)) {
        Py_CLEAR(found);
    }
    Py_DECREF(view_key);
    return found;
}

PyObject *digest_input(watcher_t *watcher, PyObject *tensor, PyObject *record) {
    if (slot_is_true(record, storage_at.trusted) && slot_is_true(record, storage_at.on_cpu)) {
        PyObject *known = borrow_slot_value(record, storage_at.view_digests);
        PyObject *content = borrow_slot_value(record, storage_at.content_digest);
        watch_status contiguous = is_contiguous_and_not_lazy(tensor),
                     lazy = contiguous ? STATUS_NO : is_lazy_conj_or_neg(tensor);
        if (contiguous < 0 || lazy < 0) return NULL;
        if (contiguous) return digest_contiguous_view_cached(tensor, known);
        if (!lazy && content != Py_None && !slot_is_true(record, storage_at.uninitialised))
            return digest_view_from_content_and_geometry(tensor, content, known);
    }
    if (!slot_is_true(record, storage_at.trusted) && slot_is_true(record, storage_at.on_cpu)) {
        /* It may change behind torch's back: read at every use while it is small (an optimizer's counters, mostly). */
        watch_status small = is_at_most_small_bytes(tensor);
        if (small > 0) small = is_contiguous_and_not_lazy(tensor);
        if (small) return small < 0 ? NULL : digest_contiguous_uncached(tensor);
    }
    PyObject *arguments[] = {watcher->storages, tensor, record};
    return PyObject_VectorcallMethod(names.digest_input, arguments, 3, NULL);
}

/* Digest an operator's output in memory that is new, and keep the digest in its record. */
static PyObject *digest_new_memory(watcher_t *watcher, PyObject *tensor, PyObject *record) {
    watch_status contiguous = is_contiguous_and_not_lazy(tensor);
    PyObject *thread = borrow_slot_value(watcher->state, state_at.number);
    if (contiguous < 0) return NULL;
    if (!contiguous) {
        PyObject *arguments[] = {watcher->storages, tensor, record, thread};
        return PyObject_VectorcallMethod(names.digest_new_memory, arguments, 4, NULL);
    }
    PyObject *key = offset_shape_dtype_key(tensor);
    PyObject *known = borrow_slot_value(record, storage_at.view_digests);
    PyObject *found = key ? digest_contiguous(tensor, key, known) : NULL;
    if (found && PyDict_SetItem(known, key, found)) Py_CLEAR(found);
    Py_XDECREF(key);
    if (!found) return NULL;
    set_slot(record, storage_at.last_writer, thread);
    set_slot(record, storage_at.content_digest, found);
    return found;
}

PyObject *digest_output(watcher_t *watcher, PyObject *tensor) {
    PyObject *record = NULL, *found = NULL, *storage = untyped_storage_of(tensor);
    PyObject *key = storage ? storage_key_of(storage) : NULL;
    if (key) {
        if ((record = PyDict_GetItemWithError(watcher->records, key))) {
            Py_INCREF(record);
            found = digest_input(watcher, tensor, record);
        } else if (!PyErr_Occurred() && (record = add_trusted_cpu_storage_record(watcher, storage, key))) {
            found = digest_new_memory(watcher, tensor, record);
        }
    }
    Py_XDECREF(record);
    Py_XDECREF(key);
    Py_XDECREF(storage);
    return found;
}

PyObject *digest_written(watcher_t *watcher, PyObject *tensor, PyObject *record) {
    PyObject *thread = borrow_slot_value(watcher->state, state_at.number);
    PyObject *storage = untyped_storage_of(tensor);
    watch_status usual = storage ? has_same_nbytes_as_storage(tensor, storage) : STATUS_ERROR;
    Py_XDECREF(storage);
    if (usual > 0 && slot_is_true(record, storage_at.on_cpu)) usual = is_contiguous_and_not_lazy(tensor);
    if (usual < 0) return NULL;
    if (!usual || !slot_is_true(record, storage_at.on_cpu)) {
        PyObject *arguments[] = {watcher->storages, tensor, record, thread};
        return PyObject_VectorcallMethod(names.digest_written, arguments, 4, NULL);
    }
    PyObject *known = borrow_slot_value(record, storage_at.view_digests), *key = offset_shape_dtype_key(tensor);
    PyDict_Clear(known);
    PyObject *found = key ? digest_contiguous(tensor, key, known) : NULL;
    if (found && PyDict_SetItem(known, key, found)) Py_CLEAR(found);
    Py_XDECREF(key);
    if (!found) return NULL;
    set_slot(record, storage_at.last_writer, thread);
    set_slot(record, storage_at.content_digest, found);
    set_slot(record, storage_at.uninitialised, Py_False);
    return found;
}
