"""The binary layout of a trace file: header, blocks, event kinds and flags.

A trace is a 512-byte header followed by blocks. Everything is little-endian. A block is written with one system
call, so after a crash a trace can be read up to the last complete block. `docs/reference/trace-format.md` documents
the same layout in prose (it calls a source location a place). Numbers and tags are never reused: old traces stay
readable.
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
LOCATIONS = b"PLCS"
EVENTS = b"EVTS"
END = b"END."
UNUSED = b"\0\0\0\0"
"""In place of a tag: the rest of the file was reserved and never written."""

LOCATION = struct.Struct("<III")
"""A source location: string id of the file (0: none), line, string id of the module path (0: none)."""

EVENT = struct.Struct("<BBHIIIQ16s")
"""kind, flags, thread, name, location, aux, inputs, outputs: 40 bytes."""
EVENT_BYTES = EVENT.size

# --- kinds of event --------------------------------------------------------------------------------------
OPERATOR = 1  # name: operator; aux: digest of scalar arguments; inputs: digest of tensors; outputs: digest
DRAW = 2  # name: generator; aux: function (string); inputs: its seed; outputs: digest of its state before the draw
SEED = 3  # name: generator; inputs: digest of the seed
CREATE = 4  # name: generator; inputs: digest of the seed, 0 if there was none
ENTROPY = 5  # name: function; outputs: digest of the value
CLOCK = 6  # name: function; outputs: the value
LISTING = 7  # name: function; aux: path (string); inputs: digest of the sorted names; outputs: of their order
FILE = 8  # name: function; aux: path (string); inputs: size in bytes; outputs: digest of the content
ENVIRONMENT = 9  # name: variable; outputs: digest of the value
LOADER = 10  # a DataLoader (aux: "made"; inputs: 1 if in order) or its iterator (inputs: workers) is created
BATCH = 11  # a DataLoader yields a batch; outputs: digest
STEP = 12  # an optimizer step ended; inputs: its number, from 1; outputs: root digest of its leaves
LEAF = 13  # name: the state (params, grads, ...); outputs: digest. Leaves precede their STEP
SAVE = 14  # torch.save; aux: path; outputs: digest of the tensors
LOAD = 15  # torch.load; aux: path; outputs: digest of the tensors
FINAL = 16  # name: model class; outputs: digest of its parameters and buffers at the end of the program
THREAD = 17  # a thread starts; name: its role; inputs: its number
COMPLETION = 18  # a task of a pool, or an item of a queue, completed; outputs: digest of which one
FRESH = 19  # partly uninitialised memory is read; name: reader; location: where it was allocated
LINE = 20  # only on request: name: variable; location: the line that ran; outputs: digest of its value
FACT = 21  # a query to the system; name: function; aux: path (string) or empty; outputs: digest of the answer
OUTPUT = 22  # name: open; aux: path; a file opened for writing, in its final state: inputs: size; outputs: digest
MARK = 23  # name: the argument of samerun.mark; inputs: steps so far; outputs: digest of the tensors
ROWS = 24  # name: operator; one pass without training. inputs: number of the pass; outputs: digest of the rows
SKIPPED = 25  # name: operator; at the end; inputs: how often it was not recorded; aux: reason (string)
MEMORY = 26  # at the end of a process with threads; inputs: number of live storages; outputs: what they hold
COLLECTIVE = 27  # name: collective, send or recv; aux: the group and its ranks (string). Precedes the operator
DOUBLE = 32  # finding of a run that executes operators twice; name: operator; aux: the finding as JSON

KIND_NAMES = {
    OPERATOR: "operator", DRAW: "draw", SEED: "seed", CREATE: "create", ENTROPY: "entropy", CLOCK: "clock",
    LISTING: "listing", FILE: "file", ENVIRONMENT: "environment", LOADER: "loader", BATCH: "batch",
    STEP: "step", LEAF: "leaf", SAVE: "save", LOAD: "load", FINAL: "final", THREAD: "thread",
    COMPLETION: "completion", FRESH: "fresh", LINE: "line", FACT: "fact", OUTPUT: "output", MARK: "mark", ROWS: "rows",
    SKIPPED: "skipped", MEMORY: "memory", COLLECTIVE: "collective", DOUBLE: "double",
}  # fmt: skip

PROCESS_STARTED, PROGRAM_STARTED, POOL_STARTED = "Process.start", "Popen", "process pool"
STARTS = (PROCESS_STARTED, PROGRAM_STARTED, POOL_STARTED)
"""Facts: the program starts something that runs beside it."""
NOT_SERIAL = "ran beside its starter"
"""Fact: what was started went on although the pin `serial` was to run it first."""
RANK_OF_PROCESS = "torch.distributed rank"
"""Name of the fact that tells a process's rank in the default group, as text."""
POOL_THREAD = "pool"
"""Role of pool threads. Which one runs a task is a race, so their events are compared as a set."""

SENDS, RECEIVES = "send", "recv"
"""Names of COLLECTIVE events that are messages: to one other rank, or from one."""

NO_VALUES = "no values"
"""The reason in a SKIPPED event for tensors that hold no values (fake and meta tensors)."""

# --- flags: the phase in the low three bits --------------------------------------------------------------
PHASES = ("forward", "backward", "optimizer", "data", "host", "between")
FORWARD, BACKWARD, OPTIMIZER, DATA, HOST, BETWEEN = range(6)
PHASE_MASK = 7
DIRECT = 8  # host events: user code made the call itself, with no library in between
FOREIGN_WRITE = 8  # operators: another thread wrote an input last
UNSEEDED = 16  # generators: created or seeded without an explicit seed
UNINITIALISED = 16  # operators: an input holds uninitialised memory
NO_INPUTS = 32  # operators: there are no tensor inputs
ON_DEVICE = 128  # operators, leaves: some digest was computed on a device, with another function than xxh3
INEXACT = 64  # operators: some tensor could not be read; only its dtype and shape are in the digest
