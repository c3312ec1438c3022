"""Sign receipts with the user's Ed25519 key, and verify signatures. Needs the package cryptography."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.base.files import open_regular_file

CONTEXT = b"samerun receipt 1\n"
"""Domain separation: prefixed to the digest, so that the signature is valid for receipts only."""


def _import_ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise SamerunError(
            "Signatures need the package cryptography, which is not installed.", hint="pip install 'samerun[sign]'"
        ) from error
    return ed25519


def load_private_key(path: Path) -> Any:
    """Read an Ed25519 private key in PEM without a passphrase. Raises SamerunError for anything else."""
    ed25519 = _import_ed25519()
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


def sign(digest: str, path: Path) -> dict[str, str]:
    """The signature of a receipt's digest, in the form of the receipt."""
    key = load_private_key(path)
    return {
        "algorithm": "ed25519",
        "public_key": key.public_key().public_bytes_raw().hex(),
        "signature": key.sign(CONTEXT + digest.encode("ascii")).hex(),
    }


def verify_signature(receipt: dict[str, Any], required_key: str | None = None) -> str | None:
    """Verify the signature of a receipt; returns the public key (64 hex digits), None if it is not signed.

    `required_key`: a public key. Raises SamerunError if the signature is invalid, or, with `required_key`, if it is
    missing or from another key.
    """
    signature = receipt.get("signature")
    if signature is None:
        if required_key is not None:
            raise SamerunError("The receipt is not signed.", hint=f"It has to be signed by {required_key}.")
        return None
    ed25519 = _import_ed25519()
    from cryptography.exceptions import InvalidSignature

    public = signature["public_key"]
    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature["signature"]), CONTEXT + receipt["digest"].encode("ascii"))
    except (InvalidSignature, ValueError) as error:
        raise SamerunError(
            "The receipt's signature is wrong.", hint="It was changed, or signed by somebody who has not that key."
        ) from error
    if required_key is not None and required_key.lower() != public:
        raise SamerunError(f"The receipt is signed by {public}.", hint=f"It has to be signed by {required_key}.")
    return str(public)
