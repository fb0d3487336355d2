"""The manifest of an archive: versions that are not taken for one another, and what it says of its files."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from journal import SliceRange
from spark_projections.archive.files import ArchivedFile, ArchiveError, Bounds
from spark_projections.archive.manifest import NAME, Manifest

DAY = datetime(2020, 1, 1, tzinfo=UTC)
FILE = ArchivedFile(
    path="entity_type=plane/date=2020-01-01/part.parquet",
    partition="events_20200101",
    bounds=Bounds(DAY, datetime(2020, 1, 2, tzinfo=UTC)),
    entity_type="plane",
    date=date(2020, 1, 1),
    slices=SliceRange(10, 12),
    rows=3,
    min_seq_nr=1,
    max_seq_nr=3,
    min_timestamp=DAY,
    max_timestamp=DAY,
    slice_counts=(1, 0, 2),
    first=("a", 1),
    first_at=DAY,
    bytes=1,
    sha256="0",
    content=2**60,
    import_id=0,
)


def test_an_older_manifest_that_was_put_back_is_refused(tmp_path: Path) -> None:
    first = Manifest((FILE,)).save(tmp_path)
    text = (tmp_path / NAME).read_bytes()
    assert Manifest.load(first.save(tmp_path) and tmp_path).files == (FILE,)
    (tmp_path / NAME).write_bytes(text)

    with pytest.raises(
        ArchiveError, match="is version 1, and _manifests has version 2: an old one was put back"
    ):
        Manifest.load(tmp_path)


def test_a_manifest_is_not_written_over_a_later_one(tmp_path: Path) -> None:
    first = Manifest((FILE,)).save(tmp_path)
    first.save(tmp_path)

    with pytest.raises(ArchiveError, match="another export has written version 2"):
        first.save(tmp_path)


def test_a_manifest_whose_files_were_changed_is_refused(tmp_path: Path) -> None:
    Manifest((FILE,)).save(tmp_path)
    path = tmp_path / NAME
    path.write_text(path.read_text().replace('"max_seq_nr": 3', '"max_seq_nr": 2'))

    with pytest.raises(ArchiveError, match="its checksum is another"):
        Manifest.load(tmp_path)


@pytest.mark.parametrize(
    ("first", "last", "events"),
    [(0, 1023, 3), (10, 10, 1), (11, 11, 0), (12, 12, 2), (11, 12, 2), (0, 9, 0), (13, 1023, 0)],
)
def test_events_of_slices_are_counted(first: int, last: int, events: int) -> None:
    assert FILE.count(SliceRange(first, last)) == events
