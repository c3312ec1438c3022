"""Write and sign a receipt and the files beside it; read and verify one that a stranger may have written.

Signatures are made with the user's Ed25519 key and need the package cryptography.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.base.files import fsync_folder, open_regular_file, write_file_atomically
from samerun.base.text import escape_as_one_line
from samerun.record.receipt import receipt_json, step_table
from samerun.record.receipt.assemble import NewReceipt, with_reproducible_digest
from samerun.record.receipt.receipt_json import SchemaErrorFinder, compile_schema

MODE = 0o600
"""Private by default: a receipt shows where its user works, and with what."""
SCHEMA_FILE = Path(__file__).with_name("receipt.schema.json")


def write(receipt_path: Path, new_receipt: NewReceipt, traces_to_move: Path | None = None) -> None:
    """Write a receipt atomically, with its .steps file and, if `traces_to_move` names a folder, its traces.

    The receipt is written last. The files beside it are named after its content, so an earlier receipt stays complete
    until the very moment it is replaced. Then the files of the earlier one are removed.

    Raises SamerunError if it cannot be written.
    """
    receipt_path = Path(os.path.realpath(receipt_path))
    digest = new_receipt.receipt["digest"]
    try:
        if new_receipt.steps_file_content is not None:
            write_file_atomically(
                step_table.steps_file_path(receipt_path, digest), new_receipt.steps_file_content, mode=MODE
            )
        if traces_to_move is not None:
            _move_traces_unless_folder_exists(traces_to_move, traces_path(receipt_path, digest))
        write_file_atomically(
            receipt_path,
            receipt_json.encode_with_sorted_keys_and_indent(new_receipt.receipt).encode("ascii"),
            mode=MODE,
        )
    except OSError as error:
        raise SamerunError(
            f"The receipt cannot be written: {receipt_path}: {error.strerror}.",
            hint="Name a file in a folder that can.",
        ) from error
    _remove_files_of_earlier_receipts(receipt_path, digest)


def traces_path(receipt_path: Path, digest: str) -> Path:
    """The folder beside a receipt for its traces by operator, if they were kept."""
    return receipt_path.with_name(f"{receipt_path.name}.{digest[:16]}.traces")


def read_and_verify_digest(path: Path) -> dict[str, Any]:
    """Read a receipt and verify its schema and digest.

    Raises SamerunError for anything else: missing, too large, nested too deeply, not a receipt, another schema, or
    modified. Nothing in it is executed, and no file that it names is opened.
    """
    value = receipt_json.read_untrusted_json(path)
    require_valid_receipt(value, str(path))
    receipt: dict[str, Any] = value
    if with_reproducible_digest(receipt)["digest"] != receipt["digest"]:
        raise SamerunError(
            f"{path} was changed after it was written: its digest is another one.", hint="Use the original."
        )
    return receipt


def require_valid_receipt(value: Any, name: str) -> None:
    """Raises SamerunError unless the value is a receipt that conforms to the schema."""
    if not isinstance(value, dict) or value.get("kind") != "samerun receipt":
        raise SamerunError(f"{name} is not a samerun receipt.", hint="A receipt is written by samerun run --receipt.")
    if value.get("schema") != receipt_json.SCHEMA:
        schema = escape_as_one_line(value.get("schema"), 40)
        raise SamerunError(
            f"{name} has schema {schema}; this samerun reads schema {receipt_json.SCHEMA}.",
            hint="Read it with the samerun that wrote it.",
        )
    said = _compile_receipt_schema_to_error_finder()(value)
    if said:
        where, _, what = said.partition(": ")
        where = escape_as_one_line(where.lstrip("/") or "the top", 100)
        raise SamerunError(
            f"{name} is not a samerun receipt: at {where}: {escape_as_one_line(what, 200)}.",
            hint="docs/reference/receipt.schema.json says what stands where.",
        )
    for role, one in value["processes"].items():
        for part, table in one["steps"].items():
            if (table["rows"] is None) != (value["steps_in"] == "file"):
                why = f"the rows of {escape_as_one_line(role)}, {part}, are not where it says"
                raise SamerunError(f"{name} is not a samerun receipt: {why}.")


@functools.cache
def load_schema() -> dict[str, Any]:
    """The JSON schema of receipts."""
    value: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return value


@functools.cache
def _compile_receipt_schema_to_error_finder() -> SchemaErrorFinder:
    return compile_schema(load_schema())


def _move_traces_unless_folder_exists(source_folder: Path, target_folder: Path) -> None:
    if target_folder.exists():  # an equal run has left the same traces
        return
    part = source_folder / "kept"  # in the folder of the run, which is cleaned up even after a crash
    part.mkdir(mode=0o700)
    for each in sorted(source_folder.glob("*.trace")):
        shutil.move(str(each), part / each.name)
    try:
        os.rename(part, target_folder)
    except OSError:
        if not target_folder.is_dir():  # another process was faster, with the same traces
            raise
    fsync_folder(target_folder.parent)


def _remove_files_of_earlier_receipts(receipt_path: Path, current_digest: str) -> None:
    """Remove the files of earlier receipts of this name. Only names of our own pattern are touched."""
    for each in receipt_path.parent.glob(f"{_escape_glob(receipt_path.name)}.{'[0-9a-f]' * 16}.*"):
        if each.name.split(".")[-2] == current_digest[:16]:
            continue
        if each.suffix == ".steps":
            each.unlink(missing_ok=True)
        elif each.suffix == ".traces":
            shutil.rmtree(each, ignore_errors=True)


def _escape_glob(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


SIGNATURE_CONTEXT = b"samerun receipt 1\n"
"""Domain separation: prefixed to the digest, so that the signature is valid for receipts only."""


def _import_ed25519_or_raise() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise SamerunError(
            "Signatures need the package cryptography, which is not installed.", hint="pip install 'samerun[sign]'"
        ) from error
    return ed25519


def load_ed25519_private_key(path: Path) -> Any:
    """Read an Ed25519 private key in PEM without a passphrase. Raises SamerunError for anything else."""
    ed25519 = _import_ed25519_or_raise()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    hint = "Make one: openssl genpkey -algorithm ed25519 -out key.pem"
    try:
        with open_regular_file(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and mode & 0o077:
                raise SamerunError(
                    f"The key {path} can be read or changed by others: its mode is {mode & 0o777:04o}.",
                    hint=f"chmod 600 {path}",
                )
            raw = file.read(1 << 20)
        key = load_pem_private_key(raw, password=None)
    except OSError as error:
        raise SamerunError(f"The key {path} cannot be read: {error.strerror}.", hint=hint) from error
    except (ValueError, TypeError) as error:
        raise SamerunError(f"{path} is no private key in PEM without a passphrase.", hint=hint) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise SamerunError(f"{path} is a private key, but not of Ed25519.", hint=hint)
    return key


def sign_digest(digest: str, key_path: Path) -> dict[str, str]:
    """The signature of a receipt's digest, in the form of the receipt."""
    key = load_ed25519_private_key(key_path)
    return {
        "algorithm": "ed25519",
        "public_key": key.public_key().public_bytes_raw().hex(),
        "signature": key.sign(SIGNATURE_CONTEXT + digest.encode("ascii")).hex(),
    }


def verify_signature_of_digest(receipt: dict[str, Any], required_public_key: str | None = None) -> str | None:
    """Verify the signature of a receipt; returns the public key (64 hex digits), None if it is not signed.

    Raises SamerunError if the signature is invalid, or, with `required_public_key`, if it is missing or from another
    key.
    """
    signature = receipt.get("signature")
    if signature is None:
        if required_public_key is not None:
            raise SamerunError("The receipt is not signed.", hint=f"It has to be signed by {required_public_key}.")
        return None
    ed25519 = _import_ed25519_or_raise()
    from cryptography.exceptions import InvalidSignature

    public = signature["public_key"]
    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature["signature"]), SIGNATURE_CONTEXT + receipt["digest"].encode("ascii"))
    except (InvalidSignature, ValueError) as error:
        raise SamerunError(
            "The receipt's signature is wrong.", hint="It was changed, or signed by somebody who has not that key."
        ) from error
    if required_public_key is not None and required_public_key.lower() != public:
        raise SamerunError(f"The receipt is signed by {public}.", hint=f"It has to be signed by {required_public_key}.")
    return str(public)
