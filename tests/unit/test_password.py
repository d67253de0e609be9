"""The admin password's hash, and the file of one that a server made."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from pinlater.data_folder.password import (
    PASSWORD_FILE,
    PasswordFileUnsafe,
    drop_password_file,
    hash_from_file,
    hash_password,
    is_made,
    is_password_hash,
    is_random,
    make_password_file,
    read_password_file,
    verify_password,
)


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


# -- the file


def test_a_file_is_made_once_and_is_whole_and_for_this_user_alone(tmp_path: Path) -> None:
    made = make_password_file(tmp_path)
    assert made == tmp_path / PASSWORD_FILE
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    password = read_password_file(made, is_server=True)
    assert is_made(password)
    assert make_password_file(tmp_path) is None
    assert read_password_file(made) == password
    assert [each.name for each in tmp_path.iterdir()] == [PASSWORD_FILE]


def test_its_password_is_verified_and_no_other() -> None:
    password = f"pinlater-{'a' * 43}"
    hashed = hash_from_file(password)
    assert is_random(hashed)
    assert not is_password_hash(hashed)
    assert verify_password(password, hashed)
    assert not verify_password(password[:-1] + "b", hashed)
    assert hash_from_file(password) != hashed


def test_a_password_that_a_person_chose_is_hashed_at_a_cost() -> None:
    assert is_password_hash(hash_from_file("sesame"))
    assert is_password_hash(hash_password(f"pinlater-{'a' * 43}"))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_file_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / PASSWORD_FILE
    path.write_text("sesame\n")
    path.chmod(mode)
    for is_server in (True, False):
        with pytest.raises(PasswordFileUnsafe, match=f"mode {mode:04o}.*remove it"):
            read_password_file(path, is_server=is_server)


def test_an_empty_file_is_no_password(tmp_path: Path) -> None:
    path = tmp_path / PASSWORD_FILE
    path.touch(0o600)
    with pytest.raises(PasswordFileUnsafe, match="is empty"):
        read_password_file(path)


def test_a_person_may_link_to_the_file_and_a_server_follows_no_link(tmp_path: Path) -> None:
    made = make_password_file(tmp_path)
    assert made is not None
    (link := tmp_path / "link").symlink_to(made)
    assert is_made(read_password_file(link))
    with pytest.raises(OSError, match="symbolic link"):
        read_password_file(link, is_server=True)


def test_only_a_made_password_that_opens_nothing_is_dropped(tmp_path: Path) -> None:
    hashed = hash_password("sesame")
    assert drop_password_file(tmp_path, hashed) is None
    path = tmp_path / PASSWORD_FILE
    path.touch(0o600)
    path.write_text("sesame\n")
    assert drop_password_file(tmp_path, hashed) is None
    path.unlink()
    made = make_password_file(tmp_path)
    assert made is not None
    assert drop_password_file(tmp_path, hash_from_file(read_password_file(made))) is None
    assert drop_password_file(tmp_path, hashed) == path
    assert not path.exists()
