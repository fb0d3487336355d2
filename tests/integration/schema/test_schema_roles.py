"""What the roles of the schema may do, and how a refusal reads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from journal import schema
from journal.database import translate
from journal.database.sync import connect_sync
from journal.errors import DatabaseUnavailable, InvalidEvent, MissingPrivilege
from tests.fixtures.schema import (
    APPEND,
    REFUSED,
    run,
)

SECRET = {"webhook_secrets", "webhook_credentials", "webhook_endpoints", "webhook_answers"}
"""A reader may not read all of these."""

_CALLED = r"""
SELECT f.proname, called[1]
FROM pg_proc AS f
CROSS JOIN regexp_matches(regexp_replace(f.prosrc, '--[^\n]*', '', 'g'), 'projections\.(\w+)\s*\(', 'g') AS called
INNER JOIN pg_proc AS c ON c.proname = called[1] AND c.pronamespace = f.pronamespace
WHERE f.pronamespace = 'projections'::regnamespace AND NOT f.prosecdef
AND has_function_privilege(%s, f.oid, 'EXECUTE') AND NOT has_function_privilege(%s, c.oid, 'EXECUTE')
"""
_STAGED = """
CREATE TEMPORARY TABLE projections_import (
    source_id text, entity_type text, event_type text, payload text, metadata text, tags text, version smallint,
    seq_nr bigint, db_timestamp timestamptz, event_id uuid
)
"""
_OLD = """
INSERT INTO projections_import VALUES ('old', 'plane', 'Landed', '{}', NULL, NULL, 1, 1, '2020-01-01Z', NULL)
"""
_WHO = (
    "CREATE FUNCTION public.who(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS "
    "'BEGIN RAISE ''%'', current_user;END'"
)
_CODE_OF_THE_CALLER = {
    "view": (
        f"{_WHO}; ALTER TABLE projections_import RENAME TO staged; "
        "CREATE TEMPORARY VIEW projections_import AS SELECT s.*, public.who('a') FROM staged AS s"
    ),
    "trigger": (
        "CREATE FUNCTION public.who() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''%'', current_user;END'; "
        "CREATE TRIGGER who BEFORE TRUNCATE ON projections_import EXECUTE FUNCTION public.who()"
    ),
    "policy": (
        f"{_WHO}; ALTER TABLE projections_import ENABLE ROW LEVEL SECURITY; "
        "CREATE POLICY who ON projections_import USING (public.who(source_id) IS NULL)"
    ),
    "index": f"{_WHO}; CREATE INDEX ON projections_import (public.who(source_id))",
    "generated": (
        f"{_WHO}; "
        "ALTER TABLE projections_import ADD COLUMN who text GENERATED ALWAYS AS (public.who(source_id)) STORED"
    ),
    "domain": "CREATE DOMAIN public.own AS text; ALTER TABLE projections_import ALTER source_id TYPE public.own",
    "collation": 'ALTER TABLE projections_import ALTER source_id TYPE text COLLATE "POSIX"',
    "child": "CREATE TEMPORARY TABLE child () INHERITS (projections_import)",
}


def _imported(dsn: str, statements: Sequence[str]) -> None:
    with connect_sync(dsn) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute("SELECT projections._import_events_v1()")


class TestRoles:
    @pytest.mark.parametrize("group", ["projections_writer", "projections_worker", "projections_reader"])
    def test_every_role_reads_the_version(self, login: Any, group: str) -> None:
        assert schema.installed_version(login(group)) == schema.SCHEMA_VERSION

    @pytest.mark.parametrize("group", ["projections_writer", "projections_worker", "projections_reader"])
    def test_who_may_call_a_function_may_call_what_it_calls(self, dsn: str, group: str) -> None:
        with connect_sync(dsn) as connection:
            assert connection.execute(_CALLED, [group, group]).fetchall() == []

    def test_a_writer_appends_and_reads(self, login: Any) -> None:
        writer = login("projections_writer")

        assert run(writer, APPEND)[0][0] == 1
        assert run(writer, APPEND.replace("'{}')", "'{}', p_event_id => gen_random_uuid())"))[0][0] == 2
        assert len(run(writer, "SELECT * FROM projections.read_source_v1('plane-1', 1, 9, false, 10)")) == 2

    def test_a_writer_imports(self, dsn: str, login: Any) -> None:
        _imported(login("projections_writer"), [_STAGED, _OLD])
        assert run(dsn, "SELECT source_id, seq_nr FROM projections.events") == [("old", 1)]

    @pytest.mark.slow
    @pytest.mark.parametrize("staged", _CODE_OF_THE_CALLER.values(), ids=list(_CODE_OF_THE_CALLER))
    def test_what_a_writer_stages_runs_no_code_as_the_owner(self, dsn: str, login: Any, staged: str) -> None:
        run(dsn, "GRANT CREATE ON SCHEMA public TO projections_writer")
        with pytest.raises(InvalidEvent, match="not a plain table"):
            _imported(login("projections_writer"), [_STAGED, *staged.split("; ")])

    @pytest.mark.slow
    def test_a_writer_has_all_of_it_where_the_owner_is_no_superuser(self, empty_dsn: str) -> None:
        names = [f"test_{uuid4().hex[:12]}" for _ in range(2)]
        owner, writer = (make_conninfo(empty_dsn, user=name, password="secret") for name in names)
        with psycopg.connect(empty_dsn, autocommit=True) as connection:
            for name in names:
                connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'".encode())
            connection.execute(f"ALTER DATABASE {connection.info.dbname} OWNER TO {names[0]}".encode())
            schema.install(owner)
            connection.execute(f"GRANT projections_writer TO {names[1]}".encode())
            try:
                _imported(writer, [_STAGED, _OLD])
                assert run(writer, APPEND)[0][0] == 1
                assert run(writer, "SELECT seq_nr FROM projections.publish_v1('p', '{t}', '{1}')") == [(1,)]
                later = "p_not_before => ARRAY[now() + interval '1 day']"
                assert run(
                    writer, f"SELECT seq_nr FROM projections.publish_v1('p', '{{t}}', '{{1}}', {later})"
                ) == [(2,)]
                assert run(owner, "SELECT count(*) FROM projections.directed_events") == [(1,)]
            finally:
                connection.execute(f"REASSIGN OWNED BY {names[0]} TO CURRENT_USER".encode())
                connection.execute(f"DROP OWNED BY {', '.join(names)}".encode())
                connection.execute(f"DROP ROLE {', '.join(names)}".encode())

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "statement",
        [
            "DELETE FROM projections.events",
            "UPDATE projections.events SET seq_nr = 1",
            "TRUNCATE projections.events",
            "DELETE FROM projections.sources",
            "UPDATE projections.sources SET seq_nr = 7",
            "INSERT INTO projections.sources VALUES ('a', 'plane', 1, 7, now())",
            "INSERT INTO projections.events VALUES ('2020-01-01Z', 1, gen_random_uuid(), 1, 1, 'a', 'b', 'c', '{}')",
            "INSERT INTO projections.imports (entity_type, from_timestamp, events) VALUES ('plane', now(), 1)",
            "INSERT INTO projections.directed_events VALUES ('a', 1, now(), 1, 't', 1, now())",
            "LOCK TABLE projections.sources IN ROW EXCLUSIVE MODE",
            "SELECT projections._lock_sources_v1('{a}', '{plane}')",
            "SELECT projections.register_projection_v1('delays', '{plane}')",
            "UPDATE projections.projections SET paused = true",
            "INSERT INTO projections.source_offsets VALUES (1, 'a', 1, 1, now())",
            "SELECT projections._create_partition_v1('2020-01-01Z', '2020-01-02Z')",
        ],
    )
    def test_a_writer_changes_neither_history_nor_offsets(self, login: Any, statement: str) -> None:
        with pytest.raises(MissingPrivilege, match=REFUSED):
            run(login("projections_writer"), statement)

    def test_a_worker_runs_a_projection(self, login: Any) -> None:
        worker = login("projections_worker")
        ((projection,),) = run(worker, "SELECT projections.register_projection_v1('delays', '{plane}')")
        run(worker, "SELECT projections._set_ranges_v1(%s, '{0,512}')", projection)
        beat = (
            "SELECT epochs FROM projections.heartbeat_v1("
            "'me', 'host', 1, '10 s', ARRAY[%s], '{delays}', '{1}', false, 0, 1, ARRAY['{plane}'])"
        )
        (([_, _],),) = run(worker, beat, projection)
        run(worker, "SELECT projections._fail_range_v1(%s, 0, 2, 1, 'why', '1 s')", projection)
        ((epoch,),) = run(worker, "SELECT epoch FROM projections._claim_range_v1(%s, 0, 'me')", projection)
        with connect_sync(worker) as connection:
            connection.execute("SELECT set_config('projections.batch', 'b', true)")
            connection.execute(
                "SELECT projections.save_offsets_v1(%s, 0, %s, 'me', 0, 0, NULL, NULL, 'b', now(), 0, "
                "'{a}', '{97}', '{}', '{1}', ARRAY[now()], 1)",
                [projection, epoch],
            )

        assert run(worker, "SELECT * FROM projections.read_offsets_v1(%s, '{a}')", projection) == [("a", 1)]
        run(
            worker,
            "SELECT projections.save_horizons_v1(%s, '{0}', '{3}', 'me', '{1}', 0, NULL, NULL, ARRAY[now()], '{0}')",
            projection,
        )
        run(worker, "SELECT projections._park_source_v1(%s, 'a', 97, 2, 'Landed', 'why', 1)", projection)
        run(worker, "SELECT projections._evict_offsets_v1(%s, '1 day', '')", projection)
        run(
            worker,
            "SELECT projections.release_range_v1(%s, 0, %s, 'me', 1, 0, NULL, NULL, now(), 0)",
            projection,
            epoch,
        )
        run(worker, "SELECT projections._take_over_v1('you', ARRAY[%s], '{1}')", projection)
        run(worker, "SELECT projections.leave_v1('me')")
        run(worker, "SELECT projections._set_offset_v1(%s, now())", projection)

    def test_a_worker_has_no_more_of_the_rights_of_others_than_it_needs(self, dsn: str) -> None:
        definers = (
            "SELECT proname FROM pg_proc WHERE pronamespace = 'projections'::regnamespace AND prosecdef "
            "AND has_function_privilege('projections_worker', oid, 'EXECUTE') ORDER BY 1"
        )

        assert [name for (name,) in run(dsn, definers)] == [
            "_compile_condition_v1", "_drop_condition_v1", "_erase_sent_v1", "_handled_v1",
            "_tell_of_endpoint_v1", "_why_waiting_v1",
            "maintain_v1",
        ]  # fmt: skip

    def test_a_worker_does_not_append(self, login: Any) -> None:
        with pytest.raises(MissingPrivilege, match=REFUSED):
            run(login("projections_worker"), APPEND)

    @pytest.mark.slow
    def test_a_reader_reads_all_tables_and_pages(self, dsn: str, login: Any) -> None:
        reader = login("projections_reader")
        run(dsn, APPEND)

        for table in schema.contents(dsn).rows:
            if table not in SECRET:
                run(reader, f"SELECT * FROM projections.{table}")
        after = "'1970-01-01Z', -1, '', 0"
        page = f"SELECT * FROM projections.read_events_by_slices_v1('{{plane}}', 0, 1023, {after}, now(), 9)"
        assert len(run(reader, page)) == 1
        run(reader, "SELECT * FROM projections.partitions, projections.writers_in_flight_v1()")
        run(reader, "SELECT * FROM projections._missing_partitions_v1()")

    @pytest.mark.parametrize(
        "what",
        [
            "* FROM projections.webhook_secrets",
            "secret FROM projections.webhook_credentials",
            "headers FROM projections.webhook_endpoints",
        ],
    )
    def test_a_reader_sees_no_secrets(self, login: Any, what: str) -> None:
        with pytest.raises(MissingPrivilege, match=REFUSED):
            run(login("projections_reader"), f"SELECT {what}")

    @pytest.mark.parametrize(
        "statement",
        [
            APPEND,
            "INSERT INTO projections.sources VALUES ('a', 'b', 1, 1, now())",
            "UPDATE projections.projection_ranges SET owner = 'me'",
            "SELECT projections._set_offset_v1(1, now())",
        ],
    )
    def test_a_reader_only_reads(self, login: Any, statement: str) -> None:
        with pytest.raises(MissingPrivilege, match=REFUSED):
            run(login("projections_reader"), statement)

    def test_a_role_without_grants_is_told_which_to_ask_for(self, login: Any) -> None:
        with pytest.raises(MissingPrivilege, match="schema projections: grant the role projections_writer"):
            run(login(None), APPEND)

    @pytest.mark.slow
    @pytest.mark.parametrize("group", ["projections_writer", "projections_worker", "projections_reader"])
    def test_no_role_may_install_over_the_owner(self, login: Any, group: str) -> None:
        with pytest.raises(MissingPrivilege, match=REFUSED):
            schema.install(login(group))


class TestConnectSync:
    def test_a_block_that_raises_is_rolled_back(self, dsn: str) -> None:
        with suppress(KeyError), connect_sync(dsn) as connection:
            connection.execute(APPEND.encode())
            raise KeyError

        assert run(dsn, "SELECT count(*) FROM projections.events") == [(0,)]

    @pytest.mark.parametrize("wrong", ["host='s3cret", "s3cret", "postgresql://u:s3cret@[/x"])
    def test_an_unreadable_dsn_shows_no_password(self, wrong: str) -> None:
        with pytest.raises(DatabaseUnavailable) as caught, connect_sync(wrong):
            pass

        assert "s3cret" not in str(caught.value)
        assert caught.value.__cause__ is None

    def test_a_server_that_is_not_there_shows_no_password(self, tmp_path: Path) -> None:
        with (
            pytest.raises(DatabaseUnavailable) as caught,
            connect_sync(f"postgresql://u:s3cret@/x?host={tmp_path}"),
        ):
            pass

        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("permission denied for schema projections", "grant the role projections_writer"),
        ("permission denied for function save_offsets_v1", "grant the role projections_writer"),
        ("permission denied for table seen", "grant it to the role that connects"),
        ("permission denied for table events", "grant it to the role that connects, or, of the schema"),
        ("must be owner of table partition_settings", "what changes tables is for the schema's owner"),
    ],
)
def test_a_missing_grant_names_whose_it_is(message: str, advice: str) -> None:
    refused = psycopg.errors.InsufficientPrivilege(message)

    told = str(translate(refused))

    assert told.startswith(f"{message}: ")
    assert advice in told
    assert ("projections_writer" in told) == ("seen" not in told)
