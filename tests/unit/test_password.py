"""The admin password's hash."""

from __future__ import annotations

import pytest

from pinlater.password import hash_password, is_password_hash, verify_password


def test_the_password_and_no_other_is_verified() -> None:
    hashed = hash_password("sésame")
    assert verify_password("sésame", hashed)
    assert not verify_password("sesame", hashed)
    assert not verify_password("", hashed)
    assert "sésame" not in hashed


def test_two_hashes_of_one_password_differ() -> None:
    assert hash_password("x") != hash_password("x")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "scrypt:16384:8:1:c2FsdA==",
        "scrypt:16383:8:1:c2FsdA==:a2V5a2V5a2V5a2V5a2V5a2V5",
        "scrypt:16384:8:1:c2FsdA==:a2V5",
        "scrypt:x:8:1:c2FsdA==:a2V5a2V5a2V5a2V5a2V5a2V5",
        "scrypt:1073741824:8:1:c2FsdA==:a2V5a2V5a2V5a2V5a2V5a2V5",
        "bcrypt:16384:8:1:c2FsdA==:a2V5a2V5a2V5a2V5a2V5a2V5",
    ],
)
def test_what_is_no_hash_of_ours_is_told_apart(text: str) -> None:
    assert not is_password_hash(text)
    with pytest.raises(ValueError, match="not a password hash"):
        verify_password("x", text)


def test_a_hash_is_told_to_be_one() -> None:
    assert is_password_hash(hash_password("x"))
