"""The trace file, byte by byte. `docs/reference/trace-format.md` says the same in words.

A trace is a 512-byte header followed by blocks. Everything is little-endian. A block is written with
one system call, so that whatever was written before a crash can be read up to the last whole block.
"""

from __future__ import annotations

import struct

MAGIC = b"SAMERUN\x01"
VERSION = 1
HEADER_BYTES = 512
"""8 magic, 4 version, 4 length of the role, 256 role (utf-8), 8 process id, 232 status (utf-8, NUL padded)."""
ROLE_AT, ROLE_BYTES = 16, 256
PID_AT = 272
STATUS_AT, STATUS_BYTES = 280, 232

BLOCK = struct.Struct("<4sIQ")
"""Tag, number of entries, number of payload bytes."""
STRINGS = b"STRS"
PLACES = b"PLCS"
EVENTS = b"EVTS"
END = b"END."

PLACE = struct.Struct("<III")
"""String id of the file (0: none), line, string id of the module path (0: none)."""

EVENT = struct.Struct("<BBHIIIQ16s")
"""kind, flags, thread, name, place, aux, inputs, outputs: 40 bytes."""
EVENT_BYTES = EVENT.size

# --- kinds of event --------------------------------------------------------------------------------------
OPERATOR = 1  # name: operator; aux: digest of scalar arguments; inputs: digest of tensors; outputs: digest
DRAW = 2  # name: generator; aux: function (string); inputs: seed it had; outputs: digest of the state before
SEED = 3  # name: generator; inputs: digest of the seed
CREATE = 4  # name: generator; inputs: digest of the seed, 0 where there was none
ENTROPY = 5  # name: function; outputs: digest of the value
CLOCK = 6  # name: function; outputs: the value
LISTING = 7  # name: function; aux: path (string); inputs: digest of the sorted names; outputs: of the order
FILE = 8  # name: function; aux: path (string); inputs: size in bytes; outputs: digest of the content
ENVIRONMENT = 9  # name: variable; outputs: digest of the value
LOADER = 10  # a DataLoader (aux: "made"; inputs: 1 if in order) or an iterator of one (inputs: workers) is made
BATCH = 11  # a DataLoader hands over a batch; outputs: digest
STEP = 12  # an optimizer step ended; inputs: its number, from 1; outputs: root of its leaves
LEAF = 13  # name: what it is (params, grads, ...); outputs: digest. Leaves stand before their STEP
SAVE = 14  # torch.save; aux: path; outputs: digest of the tensors
LOAD = 15  # torch.load; aux: path; outputs: digest of the tensors
FINAL = 16  # name: model class; outputs: digest of its parameters and buffers when the program ended
THREAD = 17  # a thread starts; name: its role; inputs: its number
COMPLETION = 18  # something finished out of a pool or a queue; outputs: digest of which
FRESH = 19  # memory that is not wholly written is read; name: reader; place: where it was made
LINE = 20  # only on demand: name: variable; place: the line that ran; outputs: digest of its value
FACT = 21  # something asked of the system; name: function; aux: path (string) or empty; outputs: digest of the answer
OUTPUT = 22  # name: open; aux: path; a file opened for writing, as it is at the end: inputs: size; outputs: digest
MARK = 23  # name: what samerun.mark was called with; inputs: steps so far; outputs: digest of the tensors
ROWS = 24  # name: operator; over a pass that trains nothing. inputs: number of the pass; outputs: digest of the rows
SKIPPED = 25  # name: operator; at the end; inputs: how often it was not recorded; aux: why (string)
DOUBLE = 32  # executed twice; name: operator; aux: what was found, as JSON (see record.watching.double.double_findings)

KIND_NAMES = {
    OPERATOR: "operator", DRAW: "draw", SEED: "seed", CREATE: "create", ENTROPY: "entropy", CLOCK: "clock",
    LISTING: "listing", FILE: "file", ENVIRONMENT: "environment", LOADER: "loader", BATCH: "batch",
    STEP: "step", LEAF: "leaf", SAVE: "save", LOAD: "load", FINAL: "final", THREAD: "thread",
    COMPLETION: "completion", FRESH: "fresh", LINE: "line", FACT: "fact", OUTPUT: "output", MARK: "mark", ROWS: "rows",
    SKIPPED: "skipped", DOUBLE: "double",
}  # fmt: skip

POOL_THREAD = "pool"
"""Role of threads that take tasks as they come: their events are compared as a set."""

# --- flags: the phase in the low three bits --------------------------------------------------------------
PHASES = ("forward", "backward", "optimizer", "data", "host", "between")
FORWARD, BACKWARD, OPTIMIZER, DATA, HOST, BETWEEN = range(6)
PHASE_MASK = 7
DIRECT = 8  # host events: user code called it itself, no library in between
FOREIGN_WRITE = 8  # operators: an input was last written by another thread
UNSEEDED = 16  # generators: made or seeded without a seed
UNINITIALISED = 16  # operators: an input holds memory that nothing wrote
NO_INPUTS = 32  # operators: there are no tensor inputs
ON_DEVICE = 128  # operators, leaves: some digest is of the kind computed on a device, not xxh3
INEXACT = 64  # operators: some tensor could not be read, only its dtype and shape are in the digest
