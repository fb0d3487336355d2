"""An archive deletes nothing: a manifest that is lost, damaged or old is noticed, and made again."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from journal import Database, EntityTypes, import_events
from journal.partitions.making import make_partitions
from spark_projections.archive.check import verify_archive
from spark_projections.archive.files import ArchiveError
from spark_projections.archive.history import read_with_archive
from spark_projections.archive.manifest import Manifest
from spark_projections.archive.repair import repair_archive
from spark_projections.archive.restore import restore_archive
from spark_projections.reading.batches import SCHEMA, Reading
from tests.fixtures.archive import (
    DAY,
    ONE_DAY,
    SOURCES,
    archived,
    change,
    drop_all,
    everything,
    export,
    filled,
    history,
    killed,
    rows,
)


@pytest.fixture
async def journal(database: Database) -> Database:
    return await filled(database)


def content(archive: Path) -> dict[str, bytes]:
    return {str(path.relative_to(archive)): path.read_bytes() for path in archive.rglob("*.parquet")}


def lose(archive: Path, *, former: bool = True) -> None:
    (archive / "_manifest.json").unlink()
    if former:
        shutil.rmtree(archive / "_manifests")


@pytest.mark.slow
@pytest.mark.parametrize("former", [True, False], ids=["alone", "with former ones"])
async def test_export_without_its_manifest_deletes_nothing_and_says_what_to_do(
    journal: Database, dsn: str, archive: Path, former: bool
) -> None:
    export(dsn, archive)
    drop_all(dsn)
    lose(archive, former=former)
    before = content(archive)

    with pytest.raises(ArchiveError) as refused:
        export(dsn, archive)

    assert content(archive) == before
    assert "has 4 archived files, and no _manifest.json that names them: entity_type=" in str(refused.value)
    assert f"Run `projections archive repair {archive}`" in str(refused.value)


@pytest.mark.slow
async def test_older_manifest_that_was_put_back_is_refused_by_who_writes_and_who_reads(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive, until=DAY + ONE_DAY)
    older = (archive / "_manifest.json").read_bytes()
    export(dsn, archive)
    drop_all(dsn)
    (archive / "_manifest.json").write_bytes(older)
    before = content(archive)

    with pytest.raises(ArchiveError, match="an old one was put back"):
        export(dsn, archive)
    with pytest.raises(ArchiveError, match="an old one was put back"):
        rows(read_with_archive(dsn, archive, Reading(EntityTypes(("plane",)))))

    repair_archive(archive, processes=1)
    export(dsn, archive)
    assert content(archive) == before
    assert len(archived(archive)) == 30 * SOURCES


@pytest.mark.slow
async def test_export_with_an_older_manifest_and_no_former_ones_takes_the_other_files_in(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive, until=DAY + ONE_DAY)
    older = (archive / "_manifest.json").read_bytes()
    export(dsn, archive)
    shutil.rmtree(archive / "_manifests")
    (archive / "_manifest.json").write_bytes(older)
    drop_all(dsn)
    before = content(archive)
    said: list[str] = []

    export(dsn, archive, say=said.append)

    assert content(archive) == before
    assert said[0].startswith("2 files that _manifest.json did not name are taken in: entity_type=plane/")
    assert verify_archive(archive, processes=1).differences == ()


@pytest.mark.slow
@pytest.mark.parametrize("former", [True, False], ids=["from the footers", "from the former one"])
async def test_repaired_archive_is_what_it_was_and_gives_everything_back(
    journal: Database, dsn: str, archive: Path, former: bool
) -> None:
    before = everything(dsn)
    export(dsn, archive)
    manifest = Manifest.load(archive)
    drop_all(dsn)
    lose(archive, former=former)

    done = repair_archive(archive, processes=1)

    again = Manifest.load(archive)
    assert (done.files, len(done.taken_in), done.missing, done.problems) == (4, 4 * former, (), ())
    assert [replace(each, import_id=0) for each in again.files] == [
        replace(each, import_id=0) for each in manifest.files
    ]
    assert verify_archive(archive, journal=dsn, processes=1).differences == ()
    restore_archive(dsn, archive)
    assert everything(dsn) == before


@pytest.mark.slow
async def test_export_after_a_repair_writes_what_the_journal_has_beyond_the_files(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive, rows_per_file=60)
    lost = archive / Manifest.load(archive).files[0].path
    lost.unlink()
    lose(archive)
    repair_archive(archive, processes=1)

    done = export(dsn, archive)

    assert (done.files, done.stuck) == (1, {})
    found = verify_archive(archive, journal=dsn, processes=1)
    assert (found.differences, found.rows) == ((), 40 * SOURCES)


async def test_damaged_manifest_is_noticed_kept_and_made_again(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    path = archive / "_manifest.json"
    path.write_text(path.read_text().replace('"rows": 120', '"rows": 121', 1))
    damaged = path.read_text()

    with pytest.raises(ArchiveError, match=r"its checksum is another.*projections archive repair"):
        Manifest.load(archive)
    repair_archive(archive, processes=1)

    assert verify_archive(archive, journal=dsn, processes=1).differences == ()
    assert [p.read_text() for p in (archive / "_manifests").glob("set-aside-*.json")] == [damaged]


@pytest.mark.slow
async def test_manifest_of_the_format_before_is_read_and_its_files_are_kept_by_it(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    old_format(archive)
    assert verify_archive(archive, journal=dsn, processes=1).differences == ()

    export(dsn, archive)
    await import_events(journal, [replace(next(history(prefix="late")), db_timestamp=DAY + ONE_DAY / 2)])
    export(dsn, archive)
    drop_all(dsn)
    (archive / "_manifest.json").unlink()
    repair_archive(archive, processes=1)

    assert len(archived(archive)) == 30 * SOURCES + 1
    lose(archive)
    done = repair_archive(archive, processes=1)
    assert (len(done.taken_in), len(done.problems)) == (1, 4)
    assert "its footer does not say what it holds" in done.problems[0]
    with pytest.raises(ArchiveError, match="that may be the only copy: nothing is written"):
        export(dsn, archive)


def old_format(archive: Path) -> None:
    """As an older version left it: no checksum, nothing in the footers, nothing kept."""
    shutil.rmtree(archive / "_manifests")
    files = []
    for each in Manifest.read(archive / "_manifest.json").files:
        table = pq.read_table(archive / each.path, partitioning=None, schema=SCHEMA)
        pq.write_table(table.replace_schema_metadata(None), archive / each.path)
        files.append(each)
    path = archive / "_manifest.json"
    values = json.loads(path.read_text())
    from spark_projections.archive.files import sha256_of

    for file in values["files"]:
        file["bytes"], file["sha256"] = (
            (archive / file["path"]).stat().st_size,
            sha256_of(archive / file["path"]),
        )
    path.write_text(json.dumps({"format": 1, "exported_at": values["exported_at"], "files": values["files"]}))


@pytest.mark.slow
async def test_former_manifests_are_kept_and_few(journal: Database, dsn: str, archive: Path) -> None:
    export(dsn, archive)
    for _ in range(15):
        Manifest.load(archive).save(archive)

    kept = sorted(path.name for path in (archive / "_manifests").iterdir())

    assert len(kept) == 10
    assert kept[-1] == f"{Manifest.load(archive).version:08}.json"


@pytest.mark.slow
async def test_export_that_another_one_overtook_writes_no_manifest(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    one = Manifest.load(archive)
    Manifest.load(archive).save(archive)

    with pytest.raises(ArchiveError, match="another export has written version"):
        one.save(archive)


_STEPS = {
    "before a file has its name": ("export", "_named", 0),
    "when some files have theirs": ("export", "_named", 2),
    "before the manifest": ("manifest", "_replace", 2),
    "between manifest and its copy": ("manifest", "_replace", 3),
    "after the copy": ("manifest", "_replace", 4),
}


@pytest.mark.slow
@pytest.mark.parametrize(("module", "function", "calls"), _STEPS.values(), ids=_STEPS)
async def test_export_that_was_killed_at_any_step_loses_and_doubles_nothing(
    journal: Database, dsn: str, archive: Path, *, module: str, function: str, calls: int
) -> None:
    killed(
        f"from spark_projections.archive import export, {module} as module\n"
        f"original, calls = module.{function}, []\n"
        "def dying(*arguments):\n"
        f"    if len(calls) == {calls}: kill()\n"
        "    calls.append(1)\n    return original(*arguments)\n"
        f"module.{function} = dying\n"
        "export.export_archive(sys.argv[1], Path(sys.argv[2]), processes=1)",
        dsn,
        archive,
    )
    before = content(archive)

    export(dsn, archive)

    after = content(archive)
    assert {path: after[path] for path in before if not path.startswith("_attempts")} == {
        path: data for path, data in before.items() if not path.startswith("_attempts")
    }
    found = verify_archive(archive, journal=dsn, processes=1)
    assert (found.differences, found.rows) == ((), 40 * SOURCES)


@pytest.mark.slow
async def test_file_that_an_export_left_half_written_is_told_and_written_again_once_it_is_out(
    journal: Database, dsn: str, archive: Path, tmp_path: Path
) -> None:
    """As on a file system whose renames are copies."""
    killed(
        "from spark_projections.archive import export\n"
        "def copied(self, target):\n"
        "    data = self.read_bytes()\n"
        "    Path(target).write_bytes(data[: len(data) // 2])\n"
        "    kill()\n"
        "named = export._named\n"
        "def dying(*arguments):\n    Path.replace = copied\n    named(*arguments)\n"
        "export._named = dying\n"
        "export.export_archive(sys.argv[1], Path(sys.argv[2]), processes=1)",
        dsn,
        archive,
    )
    (half,) = archive.glob("entity_type=*/*/*.parquet")

    with pytest.raises(
        ArchiveError, match="move it out of the archive, and the next export writes"
    ) as refused:
        export(dsn, archive)
    half.rename(tmp_path / half.name)
    export(dsn, archive)

    assert str(half) in str(refused.value)
    found = verify_archive(archive, journal=dsn, processes=1)
    assert (found.differences, found.rows) == ((), 40 * SOURCES)


@pytest.mark.slow
async def test_file_whose_events_are_given_up_is_forgotten_and_the_journal_archived_as_it_is(
    journal: Database, dsn: str, archive: Path, tmp_path: Path
) -> None:
    export(dsn, archive, rows_per_file=60)
    change(dsn, "DELETE FROM projections.events WHERE entity_type = 'plane' AND seq_nr = 30")
    (problem,) = export(dsn, archive).stuck.values()
    lacking = [each.path for each in Manifest.load(archive).files if each.max_seq_nr == 30]
    for path in lacking:
        (archive / path).rename(tmp_path / Path(path).name)

    assert repair_archive(archive, processes=1).missing == tuple(lacking)
    assert export(dsn, archive).stuck
    assert "--forget-missing" in problem
    done = repair_archive(archive, forget_missing=True, processes=1)
    again = export(dsn, archive)

    assert (done.forgotten, done.missing, done.problems) == (tuple(lacking), (), ())
    assert (again.stuck, again.rows) == ({}, 9 * SOURCES)
    found = verify_archive(archive, journal=dsn, processes=1)
    assert (found.differences, found.rows) == ((), 39 * SOURCES)


@pytest.mark.slow
async def test_forgotten_file_that_comes_back_is_taken_in(
    journal: Database, dsn: str, archive: Path, tmp_path: Path
) -> None:
    export(dsn, archive)
    drop_all(dsn)
    path = archive / Manifest.load(archive).files[0].path
    path.rename(tmp_path / path.name)
    assert repair_archive(archive, forget_missing=True, processes=1).files == 3
    (tmp_path / path.name).rename(path)

    assert repair_archive(archive, forget_missing=True, processes=1).files == 4
    found = verify_archive(archive, journal=dsn, processes=1)
    assert (found.differences, found.rows) == ((), 40 * SOURCES)


@pytest.mark.slow
async def test_verify_tells_what_is_missing_damaged_doubled_and_unnamed(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    manifest = Manifest.load(archive)
    missing, damaged, twice, _ = manifest.files
    copy = replace(twice, path=re.sub(r"part-", "part-copy-", twice.path))
    unnamed = twice.path.replace("part-", "part-unnamed-")
    shutil.copy(archive / twice.path, archive / copy.path)
    shutil.copy(archive / twice.path, archive / unnamed)
    manifest.replaced(
        twice.bounds, twice.entity_type, [*manifest.of(twice.bounds, twice.entity_type), copy]
    ).save(archive)
    (archive / missing.path).unlink()
    (archive / damaged.path).write_bytes((archive / damaged.path).read_bytes()[:-1])

    found = verify_archive(archive, processes=1)

    assert (found.missing, found.damaged) == ((missing.path,), (damaged.path,))
    assert found.doubled == tuple(sorted((twice.path, copy.path)))
    assert found.unnamed == (unnamed,)
    assert len(found.differences) == 4


@pytest.mark.slow
async def test_file_that_repeats_events_of_another_is_not_taken_in(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    path = archive / Manifest.load(archive).files[0].path
    copy = path.with_name("part-copy.parquet")
    shutil.copy(path, copy)

    with pytest.raises(ArchiveError, match="both have 120 events, such as source") as refused:
        export(dsn, archive)
    done = repair_archive(archive, processes=1)

    named = f"move {copy.relative_to(archive)}, which no manifest names, out of the archive"
    assert named in str(refused.value)
    assert named in done.problems[0]
    assert (done.files, done.taken_in, len(done.problems)) == (4, (), 1)
    assert copy.exists()
    copy.unlink()
    export(dsn, archive)
    assert verify_archive(archive, journal=dsn, processes=1).differences == ()


@pytest.mark.slow
async def test_partition_that_was_made_again_after_the_manifest_was_lost_grows(
    journal: Database, dsn: str, archive: Path
) -> None:
    export(dsn, archive)
    drop_all(dsn)
    await import_events(journal, [replace(next(history(prefix="late")), db_timestamp=DAY + ONE_DAY / 2)])
    await make_partitions(journal, ahead=1)
    lose(archive)
    repair_archive(archive, processes=1)

    done = export(dsn, archive)

    assert (done.rows, done.stuck) == (1, {})
    assert len(archived(archive)) == 30 * SOURCES + 1
