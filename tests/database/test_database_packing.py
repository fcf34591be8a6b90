"""Packed records: the text comes back, whatever version wrote it, and damage is told."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.database import formats
from autoturbo.database.formats import dictionary, encode, pack, unpack
from tests.database import database_samples as samples


@given(st.text(st.characters(max_codepoint=127)) | samples.records.map(encode))
def test_a_text_comes_back(text: str) -> None:
    assert unpack(pack(text)) == text


@given(samples.records.map(encode))
def test_a_text_of_an_earlier_version_is_as_it_is(text: str) -> None:
    assert unpack(text) == text


def test_a_large_text_comes_back_smaller() -> None:
    text = encode(samples.best(schedule="0123456789" * 50_000))
    assert unpack(pack(text)) == text
    assert len(pack(text)) < len(text) / 50


def test_a_trial_is_packed_to_less_than_half() -> None:
    text = encode(samples.trial(3))
    assert len(pack(text)) < len(text) / 2


def test_the_dictionary_is_never_edited() -> None:
    """What is in databases was packed with it and names it by its checksum."""
    assert f"{zlib.adler32(dictionary()):08x}" == "8e9d2e20"


def test_streams_without_a_dictionary_are_read() -> None:
    assert unpack(zlib.compress(b"{}")) == "{}"


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"x",
        pack("{}")[:-1],
        pack("{}") + b"x",
        pack("{}")[:8],
        pack("{}")[:-3] + b"xyz",
        pack("{}")[:2] + b"none" + pack("{}")[6:],
    ],
)
def test_what_is_damaged_says_so(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"packed"):
        unpack(damaged)


def test_a_text_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MOST_BYTES", 1000)
    assert unpack(pack("x" * 1000)) == "x" * 1000
    with pytest.raises(ValueError, match="cannot be unpacked"):
        unpack(pack("x" * 100_000))
