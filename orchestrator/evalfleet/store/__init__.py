"""The record store: Postgres tables, the coordinator's writer, readers, artifacts and the embedded server."""
