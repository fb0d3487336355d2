"""Subscriptions of groups of consumers to events: matching, reading, publishing."""
