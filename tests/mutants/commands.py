"""Bugs of commands: exit codes, durations and times, what is asked before, which database is meant."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python

_TERMINAL = "projections/terminal"
_UNIT = "tests/unit/test_derived_commands.py"

in_python(
    "commands-do-not-ask-without-a-terminal",
    "what cannot be undone is done unasked where there is no terminal, as in a script",
    f"{_TERMINAL}/confirmation.py: confirm",
    'raise CannotAsk("cannot ask for confirmation without a terminal: pass --yes")',
    "return",
    Pytest("tests/unit/test_confirmation.py::test_where_nobody_can_be_asked_it_has_to_be_said_before"),
)
in_python(
    "commands-go-on-after-a-no",
    "a command does what it has asked about, also when the answer is no",
    f"{_TERMINAL}/confirmation.py: confirm",
    "abort=True",
    "abort=False",
    Pytest("tests/unit/test_confirmation.py::test_whatever_else_is_said_ends_the_command"),
)
in_python(
    "commands-end-with-0",
    "a command that has found something wrong ends with exit code 0",
    f"{_TERMINAL}/commands.py: derived",
    "exit(answer.exit_code)",
    "exit(0)",
    Pytest(f"{_UNIT}::test_an_answer_ends_with_its_exit_code_and_its_complaint_on_stderr"),
)
in_python(
    "commands-print-tables-into-json",
    "a line for people stands in the output that a program reads",
    f"{_TERMINAL}/output.py: Answer.echo",
    "for one in () if as_json else self.shown:",
    "for one in self.shown:",
    Pytest(f"{_UNIT}::test_an_answer_ends_with_its_exit_code_and_its_complaint_on_stderr"),
)
in_python(
    "commands-round-durations",
    "1.5m is read as one minute",
    "projections/durations.py: parse_duration",
    "float(number)",
    "int(float(number))",
    Pytest("tests/unit/test_durations.py::test_durations_are_read"),
)
in_python(
    "commands-take-any-duration",
    "a duration below the least, such as a time-out of 0s, is taken",
    "projections/durations.py: Duration.convert",
    "if time < self._least:",
    "if False:",
    Pytest("tests/unit/test_durations.py::test_an_option_refuses"),
)
in_python(
    "commands-take-local-times",
    "a time without a zone is taken, as one of the machine's zone",
    f"{_TERMINAL}/times.py: Time.convert",
    "if time.utcoffset() is None:",
    "if False:",
    Pytest(f"{_UNIT}::test_a_duration_and_a_time_are_read"),
)
in_python(
    "commands-take-durations-for-times-to-come",
    "--not-before 2h is two hours ago",
    f"{_TERMINAL}/times.py: Time.convert",
    "if not self._ahead:\n            try:",
    "if True:\n            try:",
    Pytest(f"{_UNIT}::test_a_time_to_come_is_never_how_long_ago_something_was"),
)
in_python(
    "commands-prefer-the-environment",
    "a command with --dsn reads the journal that the environment names",
    f"{_TERMINAL}/connection.py: sides",
    "if dsn is None:",
    "if True:",
    Pytest("tests/unit/test_dsn.py::test_no_side_is_that_of_the_environment_where_a_dsn_is_named"),
)
in_python(
    "commands-change-the-read-side-of-the-environment",
    "a command with --dsn changes the database that the environment names",
    f"{_TERMINAL}/connection.py: read_side_alone",
    "if dsn is None:",
    "if True:",
    Pytest("tests/unit/test_dsn.py::test_no_side_is_that_of_the_environment_where_a_dsn_is_named"),
)
in_python(
    "commands-read-a-journal-twice",
    "a journal that is named twice is read twice",
    f"{_TERMINAL}/connection.py: sides",
    "if len({_named(journal)[1] for journal in journals}) < len(journals):",
    "if False:",
    Pytest("tests/unit/test_dsn.py::test_a_journal_is_read_once"),
)
in_python(
    "commands-write-to-any-version",
    "a command changes a database whose schema is of another version",
    f"{_TERMINAL}/connection.py: visit_database",
    "await check_version(session)",
    "pass",
    Pytest(
        "tests/integration/schema/test_other_versions.py::test_every_command_refuses_another_version[pause delays]"
    ),
)
in_python(
    "commands-fail-at-the-limit",
    "a lag that is at the limit is reported as above it",
    f"{_TERMINAL}/ages.py: failing_above",
    'one["lag_seconds"] > limit.total_seconds()',
    'one["lag_seconds"] >= limit.total_seconds()',
    Pytest(f"{_UNIT}::test_a_lag_is_above_a_limit_and_not_at_it"),
)
in_python(
    "commands-take-one-and-all",
    "a command with a name and --all decides about all",
    f"{_TERMINAL}/options.py: one_or_all",
    '(options[name] is None) != options["every"]',
    'options[name] is None and not options["every"]',
    Pytest("tests/acceptance/test_groups_cli.py::test_retrying_needs_to_know_what"),
)
in_python(
    "commands-erase-all-unless-told",
    "projections webhooks erase without a choice erases all messages of a tenant",
    "projections/webhooks/commands/erasing.py: _one_or_many",
    '(options["message"] is not None) + chosen + options["every"] != 1',
    '(options["message"] is not None) + chosen + options["every"] > 1',
    Pytest("tests/acceptance/test_webhooks_cli_erasing.py::test_many_are_erased_and_one_is_asked_which"),
)
in_python(
    "commands-take-the-first-that-begins-so",
    "the beginning of several ids is taken for the first of them",
    "projections/webhooks/commands/options.py: whole_id",
    "if len(found) > 1:",
    "if False:",
    Pytest(
        "tests/acceptance/test_webhooks_cli.py::test_the_beginning_of_an_id_is_enough_unless_several_begin_so"
    ),
)
in_python(
    "commands-print-what-moves-the-cursor",
    "a text of somebody's data is printed as it is, and moves the cursor of the terminal",
    f"{_TERMINAL}/output.py: printable",
    "if text.isprintable():",
    "if True:",
    Pytest(f"{_UNIT}::test_a_list_is_a_table_or_says_that_there_is_nothing"),
)
