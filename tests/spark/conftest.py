"""Spark, for the tests in this directory."""

from tests.fixtures.spark import spark, standalone_cluster

__all__ = ["spark", "standalone_cluster"]
