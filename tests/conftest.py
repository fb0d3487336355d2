"""What all tests share; the fixtures themselves are in tests/fixtures."""

pytest_plugins = ["tests.fixtures.postgres"]
