/* Where the slots of the recorder's Python objects lie. */
#include "watch.h"

#include <structmember.h>

state_slots_t state_at;
operator_slots_t operator_at;
storage_slots_t storage_at;

/* The offset of a slot, or -1 with an error. */
static Py_ssize_t slot_offset(PyObject *type, const char *name) {
    PyObject *found = PyObject_GetAttrString(type, name);
    Py_ssize_t offset = -1;
    if (!found) return -1;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type) && ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX)
        offset = ((PyMemberDescrObject *)found)->d_member->offset;
    else PyErr_Format(PyExc_TypeError, "%s of %R is no slot", name, type);
    Py_DECREF(found);
    return offset;
}

#define FIND(of, type, name) \
    if ((of.name = slot_offset(type, #name)) < 0) return STATUS_ERROR

watch_status resolve_slot_offsets(void) {
    FIND(state_at, host.ThreadState, inside_samerun);
    FIND(state_at, host.ThreadState, phase);
    FIND(state_at, host.ThreadState, module);
    FIND(state_at, host.ThreadState, outer_modules);
    FIND(state_at, host.ThreadState, node_location_ids);
    FIND(state_at, host.ThreadState, last_sequence);
    FIND(state_at, host.ThreadState, number);
    FIND(state_at, host.ThreadState, operator_count);
    FIND(state_at, host.ThreadState, step_location_id);
    FIND(operator_at, host.WatchedOperator, silent);
    FIND(operator_at, host.WatchedOperator, allocates);
    FIND(operator_at, host.WatchedOperator, random);
    FIND(operator_at, host.WatchedOperator, overwrites);
    FIND(operator_at, host.WatchedOperator, overwrites_first);
    FIND(operator_at, host.WatchedOperator, writes_nothing);
    FIND(operator_at, host.WatchedOperator, in_place);
    FIND(operator_at, host.WatchedOperator, name_id);
    FIND(operator_at, host.WatchedOperator, name);
    FIND(operator_at, host.WatchedOperator, call);
    FIND(operator_at, host.WatchedOperator, asynchronous);
    FIND(operator_at, host.WatchedOperator, rank_argument);
    FIND(operator_at, host.WatchedOperator, written_arguments);
    FIND(operator_at, host.WatchedOperator, scratch_output);
    FIND(storage_at, host.StorageRecord, weak_ref);
    FIND(storage_at, host.StorageRecord, on_cpu);
    FIND(storage_at, host.StorageRecord, view_digests);
    FIND(storage_at, host.StorageRecord, content_digest);
    FIND(storage_at, host.StorageRecord, trusted);
    FIND(storage_at, host.StorageRecord, uninitialised);
    FIND(storage_at, host.StorageRecord, made_at);
    FIND(storage_at, host.StorageRecord, last_writer);
    FIND(storage_at, host.StorageRecord, read_epoch);
    return STATUS_DONE;
}

void set_slot(PyObject *object, Py_ssize_t offset, PyObject *value) {
    PyObject *old = borrow_slot_value(object, offset);
    Py_INCREF(value);
    *slot_address(object, offset) = value;
    Py_XDECREF(old);
}

watch_status set_slot_number(PyObject *object, Py_ssize_t offset, long value) {
    PyObject *made = PyLong_FromLong(value);
    if (!made) return STATUS_ERROR;
    set_slot(object, offset, made);
    Py_DECREF(made);
    return STATUS_DONE;
}
