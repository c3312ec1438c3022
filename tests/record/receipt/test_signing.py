"""Receipts signed with a key of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_receipts import made, section

from samerun.base.errors import SamerunError
from samerun.record.receipt import receipt_file

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519


def pem(path: Path, key: object) -> Path:
    raw = key.private_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(raw)
    path.chmod(0o600)
    return path


def test_a_signature_is_checked(tmp_path: Path) -> None:
    private = ed25519.Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw().hex()
    key = pem(tmp_path / "key.pem", private)
    receipt = made().receipt
    assert receipt_file.verify_signature_of_digest(receipt) is None
    with pytest.raises(SamerunError, match="not signed"):
        receipt_file.verify_signature_of_digest(receipt, public)
    signed = {**receipt, "signature": receipt_file.sign_digest(receipt["digest"], key)}
    assert (
        receipt_file.verify_signature_of_digest(signed)
        == receipt_file.verify_signature_of_digest(signed, public.upper())
        == public
    )
    with pytest.raises(SamerunError, match="is signed by"):
        receipt_file.verify_signature_of_digest(signed, "0" * 64)
    other = made(section(steps=6)).receipt
    with pytest.raises(SamerunError, match="wrong"):
        receipt_file.verify_signature_of_digest({**other, "signature": signed["signature"]})
    for field in ("public_key", "signature"):
        with pytest.raises(SamerunError, match="wrong"):
            receipt_file.verify_signature_of_digest(
                {**signed, "signature": {**signed["signature"], field: "f" * len(signed["signature"][field])}}
            )


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    for name, content, said in (
        ("none.pem", None, "cannot be read"),
        ("text.pem", b"text", "no private key"),
        ("other.pem", pem(tmp_path / "ec.pem", ec.generate_private_key(ec.SECP256R1())).read_bytes(), "not of Ed25519"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
            (tmp_path / name).chmod(0o600)
        with pytest.raises(SamerunError, match=said):
            receipt_file.load_ed25519_private_key(tmp_path / name)
