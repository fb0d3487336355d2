"""What a condition may say: everything else is refused when it is subscribed, before any of it runs."""

from __future__ import annotations

import psycopg
import pytest

from journal import Database
from tests.fixtures.matching import (
    execute,
    fetchval,
    happened,
    match,
    matched,
    matches,
    refused,
    subscribe,
)

ACCEPTED = [
    "e.topic = 't'",
    "s.params @> jsonb_build_object('topic', e.topic)",
    "s.params->>'kind' IS NULL OR s.params->>'kind' = e.entity_type",
    "e.payload @? '$.a ? (@ > 1)' OR TRUE",
    "EXISTS (SELECT FROM jsonb_array_elements(e.payload->'a') AS x WHERE x->>'b' = '1') OR TRUE",
    "NOT 'x' = ANY (coalesce(e.tags, '{}'))",
    "hashtext(e.source_id) % 3 IN (-2, -1, 0, 1, 2)",
    "e.db_timestamp > now() - interval '1 day'",
    "e.topic ~ '^t' -- a comment at its end",
    "e.topic = $$t$$ /* ; is refused elsewhere */".replace(";", ","),
    "e.topic = E'\\x74'",
    "e.topic = U&'\\0074'",
    "slice(e) >= 0",
    "source_id = 'a'",
    "(e.topic, e.slice) >= ('t', 0::smallint)",
    "CASE WHEN e.topic = 't' THEN TRUE ELSE (e.payload->>'n')::int > 1 END",
    "to_tsvector('english', 'seven flights') @@ to_tsquery('english', 'flight')",
    'to_jsonb(e) @> \'{"topic": "t"}\'',
    "e.topic COLLATE \"C\" = 't'",
]

NOT_ONE_EXPRESSION = [
    "", " ", "--", "/*", "*/", "(", ")", "]", "true)", "(true", "true) OR (true", "true] || ARRAY[true",
    "true THEN TRUE WHEN true", "true END, CASE WHEN true", "true, true", "true AS x", "true FROM pg_class",
    "true UNION SELECT true", "SELECT true", "$$", "$x$", "'", "E'\\'", "U&'\\", '"', "$1", "$1 IS NULL",
    "true /* */ */", "true /* /* */", "VARIADIC ARRAY[true]", "DISTINCT true", "e.*", "s", "e",
    "projections_events IS NULL", "projections_place = 1", "projections_row IS NULL", "matched", "NEW.topic = 't'",
    "true RETURNING 1", "true INTO x", ":x", "?", "\\", "{", "true #", "EXECUTE 'x'", "true LIMIT 1", "true GROUP BY 1",
    "true WINDOW w AS ()", "true ORDER BY 1",
    "WITH x AS (SELECT 1) SELECT true",
]  # fmt: skip

NOT_BOOLEAN = [
    "1", "'yes'", "e.topic", "NULL::text", "ARRAY[true]", "count(*)", "unnest(ARRAY[true])",
    "bool_and(true)", "row_number() OVER () = 1", "GROUPING(e.topic) = 0", "generate_series(1, 2) = 1",
]  # fmt: skip

UNKNOWN = ["e.nothing = 1", "nothing", "x.topic = 't'", "nothing(e.topic)", "e.topic = 1", "e.topic && 't'",
           "e.topic::nothing IS NULL", "e.ctid IS NULL", "s.since IS NULL", "s.active_at IS NULL"]  # fmt: skip

FORBIDDEN = [
    # other tables
    "EXISTS (SELECT FROM pg_authid)", "EXISTS (TABLE projections.events)", "EXISTS (SELECT FROM public.others)",
    "EXISTS (SELECT FROM projections.subscriptions_at_hand)", "(SELECT count(*) FROM information_schema.tables) > 0",
    "EXISTS (SELECT FROM projections_conditions.condition_1(NULL, NULL, NULL, NULL))",
    "e.topic::regclass IS NULL", "e.topic::regrole IS NULL", "'pg_authid'::regclass IS NULL", "10::regrole = 'x'",
    # functions that read, write, wait or change the session
    "pg_sleep(1) IS NULL", "pg_read_file('/etc/passwd') IS NULL", "pg_ls_dir('/') IS NULL OR TRUE",
    "lo_import('/etc/passwd') IS NULL", "lo_get(1) IS NULL", "lo_create(1) IS NULL", "nextval('x') IS NULL",
    "table_to_xml('pg_class', true, true, '') IS NULL", "query_to_xml('SELECT 1', true, true, '') IS NULL",
    "database_to_xml(true, true, '') IS NULL", "ts_rewrite('a', 'SELECT 1') IS NULL",
    "EXISTS (SELECT FROM ts_stat('SELECT 1'))", "current_setting('is_superuser') = 'on'",
    "set_config('role', 'postgres', true) IS NULL", "set_config('statement_timeout', '0', false) IS NULL",
    "pg_terminate_backend(1)", "pg_cancel_backend(1)", "pg_advisory_lock(1) IS NULL", "pg_notify('a', 'b') IS NULL",
    "txid_current() IS NULL", "random() < 2", "clock_timestamp() IS NULL", "gen_random_uuid() IS NULL",
    "has_table_privilege('pg_authid', 'SELECT')", "pg_get_viewdef(1) IS NULL", "inet_server_addr() IS NULL",
    "obj_description(1, 'x') IS NULL", "to_regclass(e.topic) IS NULL", "pg_relation_size('x'::text::regclass) = 1",
    # functions and operators of others
    "public.anything()", "public.definer()", "projections._check_condition_is_harmless_v1(0::oid) IS NULL",
    "projections._make_condition_v1(1, '') IS NULL", "projections._as_jsonb_v1('{}') IS NULL",
    "e.topic OPERATOR(public.===) 't'", "public.every_one(true)",
    # types whose making runs code of others
    "'a'::public.checked IS NULL", "e.topic::public.checked IS NULL", "'{a}'::public.checked[] IS NULL",
    "'(a)'::public.composed IS NULL", "e.topic::public.composed IS NULL", "'{\"(a)\"}'::public.composed[] IS NULL",
    "jsonb_populate_record(NULL::public.composed, e.payload) IS NULL", "to_json('a'::public.mood) IS NULL",
    "EXISTS (SELECT FROM jsonb_to_record(e.payload) AS x (a public.checked))",
    "CAST(ROW('a') AS public.composed) IS NULL", "public.composed '(a)' IS NULL",
    # much of little
    "repeat('a', 1000000000) IS NULL", "lpad('a', 1000000000) IS NULL", "rpad('a', 1000000000) IS NULL",
    "format('%1000000000s', 'a') IS NULL",
    "replace('aa', 'a', e.topic) IS NULL", "array_fill(1, ARRAY[99999999]) IS NULL",
    "regexp_replace('aa', 'a', e.topic, 'g') IS NULL", "quote_literal(quote_literal(e.topic)) IS NULL",
    "EXISTS (SELECT FROM generate_series(1, 1000000000))", "array_to_string(e.tags, e.topic) IS NULL",
    "(SELECT string_agg(x, 'a') FROM unnest(e.tags) AS x) IS NULL",
    "(SELECT array_agg(x) FROM unnest(e.tags) AS x) IS NULL", "ARRAY(SELECT unnest(e.tags)) IS NULL",
    "(SELECT jsonb_agg(x) FROM unnest(e.tags) AS x) IS NULL",
    "(SELECT b || b FROM unnest(ARRAY['a']) AS a, unnest(ARRAY[a || a]) AS b) IS NULL",
    "(SELECT x || x FROM (SELECT e.topic || e.topic AS x) AS y) IS NULL",
    "(SELECT x || x FROM (VALUES (e.topic || e.topic)) AS y (x)) IS NULL",
    "(SELECT (SELECT a || a FROM unnest(ARRAY[b || b]) AS a) FROM unnest(ARRAY['a']) AS b) IS NULL",
    "(WITH RECURSIVE x (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT count(*) FROM x) > 1",
    "EXISTS (SELECT 1 UNION ALL SELECT 2)",
    "'x'::char(10000000) <> e.topic", "(e.payload->>'n')::char(10000000) = 'x'", "CAST(e.topic AS character(9)) = ''",
    "length(ARRAY[e.topic, e.topic]::char(10000000)[]::text) > 0", "char(10000000) 'x' = e.topic",
    "pg_catalog.bpchar(e.topic::bpchar, 10000004, true) = 'x'", "e.seq_nr::bit(80000000) IS NOT NULL",
    "(e.seq_nr::int)::bit(80000000) IS NOT NULL", "(e.topic::bit(80000000))::text = 'x'", "B'1'::bit(80000000) IS NULL",
    "EXISTS (SELECT FROM jsonb_to_recordset(e.payload) AS x (n char(10000000)))",
    "EXISTS (SELECT FROM jsonb_to_record(e.payload) AS x (n bit(80000000), m text))",
    "EXISTS (SELECT FROM jsonb_to_record(e.payload) AS x (n char(10000000)[]))",
    "concat_ws(e.topic, VARIADIC e.tags) > ''", "e.topic ~ '(((((a{99}){99}){99}){9}){9})'",
    "e.topic ~ '((a{2,16}){2,255}){1,2}'",
]  # fmt: skip

OTHERS = """
CREATE TABLE others (n integer);
CREATE TABLE ran (n integer);
CREATE FUNCTION anything() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN INSERT INTO public.ran VALUES (1); RETURN TRUE; END $$;
CREATE FUNCTION definer() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN INSERT INTO public.ran VALUES (1); RETURN TRUE; END $$;
CREATE FUNCTION same(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT public.definer() $$;
CREATE OPERATOR === (LEFTARG = text, RIGHTARG = text, FUNCTION = same);
CREATE FUNCTION also(boolean, boolean) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT public.definer() $$;
CREATE AGGREGATE every_one(boolean) (SFUNC = also, STYPE = boolean);
CREATE DOMAIN checked AS text CHECK (definer());
CREATE TYPE composed AS (a checked);
CREATE TYPE mood AS ENUM ('a');
"""


def _nested(levels: int) -> str:
    """A text that doubles at each level."""
    text = "e.topic"
    for _ in range(levels):
        text = f"ARRAY[{text}]::text"
    return text


@pytest.fixture
async def others(database: Database) -> Database:
    """Objects of somebody else, which write when they are used."""
    await execute(database, OTHERS)
    return database


@pytest.mark.slow
async def test_expressions_over_the_event_and_the_subscription_are_asked(database: Database) -> None:
    for condition in ACCEPTED:
        await subscribe(database, condition, group=condition, params='{"topic": "t"}')
    await happened(database)

    await match(database)

    assert [group for group, *_ in await matches(database)] == ACCEPTED


@pytest.mark.slow
async def test_nothing_but_one_boolean_expression_is_a_condition(database: Database) -> None:
    accepted = []
    for condition in (*NOT_ONE_EXPRESSION, *NOT_BOOLEAN, *UNKNOWN):
        error = await refused(database, condition)
        if error.sqlstate != "PJ080" or "condition" not in str(error):
            accepted.append((condition, str(error)))

    assert not accepted


@pytest.mark.slow
async def test_what_does_more_than_to_look_is_refused(others: Database) -> None:
    await subscribe(others, "TRUE")  # so that there is a condition to call
    accepted = []
    for condition in FORBIDDEN:
        error = await refused(others, condition)
        if error.sqlstate != "PJ080" or "condition" not in str(error):
            accepted.append((condition, error.sqlstate, str(error)))

    assert not accepted
    assert await fetchval(others, "SELECT count(*) FROM ran") == 0


async def test_a_refusal_leaves_nothing_behind(database: Database) -> None:
    await refused(database, "pg_sleep(1) IS NULL")

    assert await fetchval(database, "SELECT count(*) FROM projections.conditions") == 0
    assert await fetchval(database, "SELECT count(*) FROM projections.subscription_groups") == 0
    assert not await fetchval(
        database,
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'projections_conditions'::regnamespace",
    )


async def test_a_semicolon_is_refused_wherever_it_stands(database: Database) -> None:
    for condition in ("true; DROP TABLE x", "e.topic = ';'", "true -- ;"):
        error = await refused(database, condition)

        assert error.sqlstate == "PJ080"
        assert "semicolon" in str(error)


async def test_a_condition_may_have_10000_characters(database: Database) -> None:
    longest = "e.topic = 'x' OR ".ljust(9_996) + "TRUE"

    await subscribe(database, longest)
    error = await refused(database, longest + " ")

    assert error.sqlstate == "PJ080"
    assert "10,001" in str(error) or "10001" in str(error)


@pytest.mark.parametrize(
    "condition",
    ["TRUE" + " = TRUE" * 1_400, "NOT (" * 1_600 + "TRUE" + ")" * 1_600, "length(" + _nested(40) + ") > 0"],
)
async def test_what_is_nested_deeply_is_refused(database: Database, condition: str) -> None:
    assert (await refused(database, condition)).sqlstate == "PJ080"


@pytest.mark.parametrize(
    "condition", [" OR ".join(f"e.topic = '{n}'" for n in range(500)), "(" * 4_900 + "TRUE" + ")" * 4_900]
)
async def test_what_is_long_but_not_deep_is_accepted(database: Database, condition: str) -> None:
    await subscribe(database, condition)


async def test_subscribing_evaluates_nothing(database: Database) -> None:
    """Not even what PostgreSQL evaluates when it plans."""
    await subscribe(database, "1 / 0 = 1")
    await subscribe(database, "'x'::text::int = 1")

    assert await fetchval(database, "SELECT count(*) FROM projections.conditions") == 2


async def test_a_session_that_reads_backslashes_otherwise_smuggles_nothing_in(
    dsn: str, database: Database
) -> None:
    """What is a text to it would end one, and go on, where the condition is asked."""
    hidden = r"e.topic = '\' OR pg_sleep(1) IS NULL --'"
    with psycopg.connect(dsn, autocommit=True) as connection:
        if connection.info.server_version >= 190000:
            pytest.skip("backslashes are read in one way only")
        connection.execute("SET standard_conforming_strings = off")
        connection.execute("SET escape_string_warning = off")

        with pytest.raises(psycopg.Error) as caught:
            connection.execute("SELECT projections.subscribe_v1('g', %s)", [hidden])

    assert caught.value.sqlstate == "PJ080"


async def test_the_function_of_a_condition_reads_backslashes_in_one_way(dsn: str, database: Database) -> None:
    await subscribe(database, r"e.topic = '\' OR e.topic = 't' --'".replace("--'", ""))

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET standard_conforming_strings = off")
        connection.execute("SET escape_string_warning = off")
        connection.execute(
            "SELECT projections._match_log_v1('{plane}', '{a}', '{1}', ARRAY[now()], '{97}', '{t}')"
        )

    assert await matched(database) == [("a", 1)]


ESCAPES = """
CREATE FUNCTION escape() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('search_path', 'trojan', false);
    CREATE TEMPORARY TABLE left_behind (n integer);
    CREATE FUNCTION pg_temp.later() RETURNS trigger LANGUAGE plpgsql AS '
    BEGIN INSERT INTO public.ran VALUES (1); RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER later AFTER INSERT ON left_behind
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pg_temp.later();
    INSERT INTO left_behind VALUES (1);
    RETURN TRUE;
END $$;
CREATE DOMAIN escaping AS text CHECK (escape());
CREATE TYPE vessel AS (a escaping);
"""


async def test_code_that_runs_while_a_condition_is_parsed_leaves_nothing_in_the_session(
    dsn: str, others: Database
) -> None:
    """A literal of a row type is read as soon as it is parsed; the session is a superuser's."""
    await execute(others, ESCAPES)
    with psycopg.connect(dsn) as connection:
        path = connection.execute("SHOW search_path").fetchone()
        connection.execute("SAVEPOINT before")
        with pytest.raises(psycopg.Error) as caught:
            connection.execute("SELECT projections.subscribe_v1('g', '''(a)''::public.vessel IS NULL')")
        connection.execute("ROLLBACK TO before")

        assert caught.value.sqlstate == "PJ080"
        assert connection.execute("SHOW search_path").fetchone() == path
        assert connection.execute("SELECT to_regclass('pg_temp.left_behind')").fetchone() == (None,)
        connection.commit()

    assert await fetchval(others, "SELECT count(*) FROM ran") == 0


GRANTED = """
CREATE FUNCTION asked() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN RETURN {body}; END $$;
GRANT EXECUTE ON FUNCTION asked() TO projections_matcher;
"""


@pytest.mark.slow
async def test_a_function_that_was_granted_is_asked_and_one_that_writes_is_not(database: Database) -> None:
    await execute(database, GRANTED.format(body="TRUE"))
    await happened(database)
    await subscribe(database, "public.asked()")
    await match(database)
    await execute(database, "ALTER FUNCTION asked() VOLATILE")

    error = await refused(database, "public.asked() AND TRUE")

    assert await matched(database) == [("a", 1)]
    assert error.sqlstate == "PJ080"


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "EXISTS (SELECT FROM projections.events)",
        "EXISTS (SELECT FROM projections.subscriptions)",
        "EXISTS (SELECT FROM public.secrets)",
        "set_config('role', session_user, true) IS NOT NULL",
        "set_config('session_authorization', session_user, true) IS NOT NULL",
        "(SELECT rolsuper FROM pg_roles WHERE rolname = current_user)",
    ],
)
async def test_conditions_run_as_a_role_that_may_nothing_though_a_superuser_asks(
    database: Database, body: str
) -> None:
    await execute(database, "CREATE TABLE secrets ()")
    await execute(database, GRANTED.format(body=body))
    await subscribe(database, "public.asked()")
    await happened(database)

    await match(database)

    assert await matched(database) == []


async def test_who_makes_conditions_owns_nothing_else(database: Database) -> None:
    owned = """
    SELECT array_agg(p.oid::regproc::text ORDER BY p.proname) FROM pg_proc AS p
    WHERE pg_get_userbyid(p.proowner) = 'projections_matcher' AND p.pronamespace = 'projections'::regnamespace
    """
    assert await fetchval(database, owned) == [
        "projections._compile_condition_v1", "projections._drop_condition_v1"
    ]  # fmt: skip
    assert not await fetchval(
        database, "SELECT has_schema_privilege('projections_matcher', 'projections', 'CREATE')"
    )
    assert not await fetchval(
        database, "SELECT rolcanlogin OR rolsuper FROM pg_roles WHERE rolname = 'projections_matcher'"
    )
