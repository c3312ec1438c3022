/* Read tensors through the descriptors of their Python type, called without looking them up. */
#include "watch.h"

/* A getter of the type, or a method of it that is called without arguments. */
typedef struct {
    PyObject *object;
    getter read;
    void *closure;
    PyMethodDef *method;
} descriptor_t;

static struct {
    descriptor_t is_cpu, layout, dtype, is_nested, shape, requires_grad, nbytes;
    descriptor_t untyped_storage, is_contiguous, is_neg, is_conj, storage_offset, stride, data_ptr;
    descriptor_t cdata, storage_nbytes, storage_data_ptr, weak_ref;
} descriptors;

static PyObject *no_arguments;
static bool in_forked_child;

static watch_status resolve_getter_or_method(descriptor_t *descriptor, PyObject *type, const char *name) {
    PyObject *found = descriptor->object = PyObject_GetAttrString(type, name);
    if (!found) return STATUS_ERROR;
    if (Py_IS_TYPE(found, &PyGetSetDescr_Type)) {
        descriptor->read = ((PyGetSetDescrObject *)found)->d_getset->get;
        descriptor->closure = ((PyGetSetDescrObject *)found)->d_getset->closure;
        if (descriptor->read) return STATUS_DONE;
    } else if (Py_IS_TYPE(found, &PyMethodDescr_Type)) {
        descriptor->method = ((PyMethodDescrObject *)found)->d_method;
        int flags =
            descriptor->method->ml_flags & (METH_NOARGS | METH_VARARGS | METH_KEYWORDS | METH_FASTCALL | METH_O);
        if (flags == METH_NOARGS || flags == METH_VARARGS || flags == (METH_VARARGS | METH_KEYWORDS))
            return STATUS_DONE;
    }
    PyErr_Format(PyExc_TypeError, "%s of %R is called in another way", name, type);
    return STATUS_ERROR;
}

static inline PyObject *read_attribute(const descriptor_t *descriptor, PyObject *object) {
    if (descriptor->read) return descriptor->read(object, descriptor->closure);
    PyCFunction function = descriptor->method->ml_meth;
    if (descriptor->method->ml_flags & METH_NOARGS) return function(object, NULL);
    if (descriptor->method->ml_flags & METH_KEYWORDS)
        return ((PyCFunctionWithKeywords)(void (*)(void))function)(object, no_arguments, NULL);
    return function(object, no_arguments);
}

static inline watch_status read_bool(const descriptor_t *descriptor, PyObject *object) {
    PyObject *found = read_attribute(descriptor, object);
    if (!found) return STATUS_ERROR;
    Py_DECREF(found); /* True and False are never freed */
    return found == Py_True ? STATUS_YES : STATUS_NO;
}

watch_status resolve_tensor_descriptors(void) {
    PyObject *tensor = host.Tensor, *storage = host.UntypedStorage;
    const struct {
        descriptor_t *descriptor;
        PyObject *type;
        const char *name;
    } wanted[] = {
        {&descriptors.is_cpu, tensor, "is_cpu"},
        {&descriptors.layout, tensor, "layout"},
        {&descriptors.dtype, tensor, "dtype"},
        {&descriptors.is_nested, tensor, "is_nested"},
        {&descriptors.shape, tensor, "shape"},
        {&descriptors.requires_grad, tensor, "requires_grad"},
        {&descriptors.nbytes, tensor, "nbytes"},
        {&descriptors.untyped_storage, tensor, "untyped_storage"},
        {&descriptors.is_contiguous, tensor, "is_contiguous"},
        {&descriptors.is_neg, tensor, "is_neg"},
        {&descriptors.is_conj, tensor, "is_conj"},
        {&descriptors.storage_offset, tensor, "storage_offset"},
        {&descriptors.stride, tensor, "stride"},
        {&descriptors.data_ptr, tensor, "data_ptr"},
        {&descriptors.cdata, storage, "_cdata"},
        {&descriptors.storage_nbytes, storage, "nbytes"},
        {&descriptors.storage_data_ptr, storage, "data_ptr"},
        {&descriptors.weak_ref, storage, "_weak_ref"},
    };
    if (!(no_arguments = PyTuple_New(0))) return STATUS_ERROR;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (resolve_getter_or_method(wanted[i].descriptor, wanted[i].type, wanted[i].name) < 0) return STATUS_ERROR;
    return STATUS_DONE;
}

watch_status is_plain_cpu_tensor(PyObject *tensor) {
    watch_status on_cpu = read_bool(&descriptors.is_cpu, tensor);
    if (on_cpu <= 0) return on_cpu;
    PyObject *layout = read_attribute(&descriptors.layout, tensor);
    if (!layout) return STATUS_ERROR;
    bool strided = layout == host.strided;
    Py_DECREF(layout);
    if (!strided) return STATUS_NO;
    PyObject *dtype = read_attribute(&descriptors.dtype, tensor);
    if (!dtype) return STATUS_ERROR;
    int odd = PySet_Contains(host.odd_dtypes, dtype);
    Py_DECREF(dtype);
    if (odd) return odd < 0 ? STATUS_ERROR : STATUS_NO;
    watch_status nested = read_bool(&descriptors.is_nested, tensor);
    return nested < 0 ? STATUS_ERROR : nested ? STATUS_NO : STATUS_YES;
}

watch_status is_lazy_conj_or_neg(PyObject *tensor) {
    watch_status negative = read_bool(&descriptors.is_neg, tensor);
    return negative ? negative : read_bool(&descriptors.is_conj, tensor);
}

watch_status is_contiguous_and_not_lazy(PyObject *tensor) {
    watch_status contiguous = read_bool(&descriptors.is_contiguous, tensor);
    if (contiguous <= 0) return contiguous;
    watch_status lazy = is_lazy_conj_or_neg(tensor);
    return lazy < 0 ? STATUS_ERROR : lazy ? STATUS_NO : STATUS_YES;
}

watch_status requires_grad(PyObject *tensor) { return read_bool(&descriptors.requires_grad, tensor); }

PyObject *untyped_storage_of(PyObject *tensor) { return read_attribute(&descriptors.untyped_storage, tensor); }

PyObject *storage_key_of(PyObject *storage) { return read_attribute(&descriptors.cdata, storage); }

PyObject *storage_weak_ref(PyObject *storage) { return read_attribute(&descriptors.weak_ref, storage); }

PyObject *shape_of(PyObject *tensor) { return read_attribute(&descriptors.shape, tensor); }

PyObject *storage_offset_of(PyObject *tensor) { return read_attribute(&descriptors.storage_offset, tensor); }

PyObject *offset_shape_dtype_key(PyObject *tensor) {
    PyObject *offset = read_attribute(&descriptors.storage_offset, tensor);
    PyObject *shape = offset ? read_attribute(&descriptors.shape, tensor) : NULL;
    PyObject *dtype = shape ? read_attribute(&descriptors.dtype, tensor) : NULL;
    PyObject *key = dtype ? PyTuple_Pack(3, offset, shape, dtype) : NULL;
    Py_XDECREF(offset);
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
    return key;
}

PyObject *offset_shape_stride_dtype_key(PyObject *tensor) {
    PyObject *plain = offset_shape_dtype_key(tensor),
             *stride = plain ? read_attribute(&descriptors.stride, tensor) : NULL, *key = NULL;
    if (stride)
        key =
            PyTuple_Pack(4, PyTuple_GET_ITEM(plain, 0), PyTuple_GET_ITEM(plain, 1), stride, PyTuple_GET_ITEM(plain, 2));
    Py_XDECREF(plain);
    Py_XDECREF(stride);
    return key;
}

static long long read_number(const descriptor_t *descriptor, PyObject *object) {
    PyObject *found = read_attribute(descriptor, object);
    if (!found) return -1;
    unsigned long long value = PyLong_AsUnsignedLongLongMask(found);
    Py_DECREF(found);
    return (long long)value;
}

watch_status has_same_nbytes_as_storage(PyObject *tensor, PyObject *storage) {
    long long size = read_number(&descriptors.nbytes, tensor);
    long long whole = size == -1 ? -1 : read_number(&descriptors.storage_nbytes, storage);
    if (PyErr_Occurred()) return STATUS_ERROR;
    return size == whole ? STATUS_YES : STATUS_NO;
}

watch_status is_at_most_small_bytes(PyObject *tensor) {
    long long size = read_number(&descriptors.nbytes, tensor);
    if (size == -1 && PyErr_Occurred()) return STATUS_ERROR;
    return size <= host.small_bytes ? STATUS_YES : STATUS_NO;
}

/* The seed that stands for dtype and shape: `digest.shape_seed`, of which `host.shape_seeds` is the memory. */
static PyObject *dtype_and_shape_seed(PyObject *dtype, PyObject *shape) {
    PyObject *key = PyTuple_Pack(2, dtype, shape);
    if (!key) return NULL;
    PyObject *seed = PyDict_GetItemWithError(host.shape_seeds, key);
    Py_DECREF(key);
    if (seed) return Py_INCREF(seed), seed;
    if (PyErr_Occurred()) return NULL;
    return PyObject_CallFunctionObjArgs(host.shape_seed, dtype, shape, NULL);
}

typedef void pieces_t(const void *data, uint64_t size, uint64_t piece, uint64_t seed, void *out, void *team,
                      uint32_t threads);

/* As `native.may_use_torch_openmp_threads` says: only the main thread, and never a forked child. */
static long count_openmp_threads_if_main_thread(void) {
    if (!host.openmp_parallel || in_forked_child || PyThread_get_thread_ident() != host.main_thread) return 1;
    PyObject *found = PyObject_CallNoArgs(host.get_num_threads);
    if (!found) return -1;
    long threads = PyLong_AsLong(found);
    Py_DECREF(found);
    return threads;
}

static PyObject *xxh3_128(PyObject *data, PyObject *seed) {
    PyObject *arguments[3] = {NULL, data, seed};
    return PyObject_Vectorcall(host.xxh3_128_digest, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

static PyObject *compute_piece_digests(void *data, long long size) {
    long threads = count_openmp_threads_if_main_thread();
    if (threads < 0) return NULL;
    PyObject *parts = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(size / host.piece_bytes * 16));
    if (!parts) return NULL;
    pieces_t *pieces = (pieces_t *)(uintptr_t)host.digest_pieces;
    void *team = threads > 1 ? (void *)(uintptr_t)host.openmp_parallel : NULL;
    char *out = PyBytes_AS_STRING(parts);
    Py_BEGIN_ALLOW_THREADS
    pieces(data, (uint64_t)size, (uint64_t)host.piece_bytes, 0, out, team, (uint32_t)threads);
    Py_END_ALLOW_THREADS
    return parts;
}

/* Do the elements lie in memory? A storage may have been made smaller than its tensor: reading would crash. */
static watch_status elements_lie_in_storage(PyObject *tensor, unsigned long long address, long long byte_count) {
    PyObject *storage = untyped_storage_of(tensor);
    if (!storage) return STATUS_ERROR;
    long long whole = read_number(&descriptors.storage_nbytes, storage);
    unsigned long long begin = 0;
    if (!PyErr_Occurred() && whole > byte_count)
        begin = (unsigned long long)read_number(&descriptors.storage_data_ptr, storage);
    Py_DECREF(storage);
    if (PyErr_Occurred()) return STATUS_ERROR;
    return whole == byte_count ||
           (whole > byte_count && address >= begin && address + (uint64_t)byte_count <= begin + (uint64_t)whole);
}

/* The digests of the pieces are kept in `digest_cache`, where there is one: views of other shapes need them too. */
static PyObject *digest_large_contiguous(unsigned long long address, long long size, PyObject *seed,
                                         PyObject *digest_cache_or_null) {
    PyObject *at = digest_cache_or_null ? Py_BuildValue("(KL)", address, size) : NULL, *parts = NULL, *found = NULL;
    if (digest_cache_or_null && !at) return NULL;
    if (at && (parts = PyDict_GetItemWithError(digest_cache_or_null, at))) Py_INCREF(parts);
    else if (!PyErr_Occurred() && (parts = compute_piece_digests((void *)(uintptr_t)address, size)) && at &&
             PyDict_SetItem(digest_cache_or_null, at, parts))
        Py_CLEAR(parts);
    if (parts) found = xxh3_128(parts, seed);
    Py_XDECREF(parts);
    Py_XDECREF(at);
    return found;
}

static PyObject *digest_contiguous_with_dtype_and_shape(PyObject *tensor, PyObject *dtype, PyObject *shape,
                                                        PyObject *digest_cache) {
    PyObject *found = NULL, *seed = dtype_and_shape_seed(dtype, shape);
    if (!seed) return NULL;
    long long size = read_number(&descriptors.nbytes, tensor);
    long long address = size == -1 ? -1 : read_number(&descriptors.data_ptr, tensor);
    if (PyErr_Occurred()) goto done;
    watch_status in_storage = size ? elements_lie_in_storage(tensor, (unsigned long long)address, size) : STATUS_YES;
    if (in_storage <= 0) {
        if (!in_storage) found = PyObject_CallOneArg(host.digest, tensor);
        goto done;
    }
    if (size >= host.large_bytes) {
        found = host.digest_pieces ? digest_large_contiguous((unsigned long long)address, size, seed, digest_cache)
                                   : PyObject_CallFunctionObjArgs(host.digest_dense_tensor, tensor, seed, NULL);
        goto done;
    }
    static char none[1];
    PyObject *data = PyMemoryView_FromMemory(size ? (char *)(uintptr_t)address : none, (Py_ssize_t)size, PyBUF_READ);
    if (!data) goto done;
    found = xxh3_128(data, seed);
    Py_DECREF(data);
done:
    Py_DECREF(seed);
    return found;
}

PyObject *digest_contiguous(PyObject *tensor, PyObject *view_key, PyObject *digest_cache_or_null) {
    return digest_contiguous_with_dtype_and_shape(tensor, PyTuple_GET_ITEM(view_key, 2), PyTuple_GET_ITEM(view_key, 1),
                                                  digest_cache_or_null);
}

PyObject *digest_contiguous_uncached(PyObject *tensor) {
    PyObject *dtype = read_attribute(&descriptors.dtype, tensor);
    PyObject *shape = dtype ? read_attribute(&descriptors.shape, tensor) : NULL;
    PyObject *found = shape ? digest_contiguous_with_dtype_and_shape(tensor, dtype, shape, NULL) : NULL;
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    return found;
}

PyObject *digest(PyObject *module, PyObject *tensor) {
    (void)module;
    watch_status usual = is_tensor(tensor) ? is_plain_cpu_tensor(tensor) : STATUS_NO;
    if (usual > 0) usual = is_contiguous_and_not_lazy(tensor);
    if (usual < 0) return NULL;
    return usual ? digest_contiguous_uncached(tensor) : PyObject_CallOneArg(host.digest, tensor);
}

watch_status write_digest_bytes(char *out, PyObject *value, PyObject *digest_other) {
    PyObject *found = is_tensor(value) ? digest(NULL, value) : PyObject_CallOneArg(digest_other, value);
    if (!found) return STATUS_ERROR;
    bool right = PyBytes_Check(found) && PyBytes_GET_SIZE(found) == DIGEST_BYTES;
    if (right) memcpy(out, PyBytes_AS_STRING(found), DIGEST_BYTES);
    Py_DECREF(found);
    if (!right) PyErr_SetString(PyExc_TypeError, "a digest is 16 bytes");
    return right ? STATUS_DONE : STATUS_ERROR;
}

PyObject *digest_of_element_digests(PyObject *module, PyObject *args) {
    PyObject *values, *digest_other;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &values, &digest_other)) return NULL;
    Py_ssize_t count = PyList_GET_SIZE(values);
    PyObject *joined = PyBytes_FromStringAndSize(NULL, count * DIGEST_BYTES), *found = NULL;
    if (!joined) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i >= PyList_GET_SIZE(values)) { /* `otherwise` may run anything */
            PyErr_SetString(PyExc_RuntimeError, "the list changed while it was digested");
            goto done;
        }
        PyObject *value = PyList_GET_ITEM(values, i);
        Py_INCREF(value);
        watch_status status = write_digest_bytes(PyBytes_AS_STRING(joined) + i * DIGEST_BYTES, value, digest_other);
        Py_DECREF(value);
        if (status < 0) goto done;
    }
    found = PyObject_CallOneArg(host.xxh3_128_digest, joined);
done:
    Py_DECREF(joined);
    return found;
}

void stop_borrowing_openmp_threads(void) { in_forked_child = true; }
