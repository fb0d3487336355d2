"""Webhooks: endpoints of tenants, to which matching events are delivered over HTTP, and a log of what was tried."""
