"""Defining projections: handlers, table handlers, and finding those of an application."""
