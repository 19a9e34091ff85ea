"""`python -m evalfleet.store.migrate`: bring the database that the settings name up to this version."""

from __future__ import annotations

from pathlib import Path

import psycopg
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from evalfleet.errors import ConfigurationError, StoreError
from evalfleet.settings import Settings

#: Two migrating processes wait for each other on this advisory lock.
_LOCK = 0x65_76_61_6C_66_6C_74


def migrate(url: str) -> None:
    """Run every migration that the database at `url` lacks. Safe to call at the same time from many processes.

    Raises StoreError when the database was written by a newer version.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    script = ScriptDirectory.from_config(config)
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        current = MigrationContext.configure(connection).get_current_revision()
        if current is not None and current not in {revision.revision for revision in script.walk_revisions()}:
            raise StoreError(f"the database has schema {current}, which this version doesn't know: upgrade evalfleet")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.commit()


def main() -> None:
    settings = Settings.from_environment()
    if settings.database_url is None:
        raise ConfigurationError("set EVALFLEET_DATABASE_URL to the database to migrate")
    migrate(settings.database_url)


if __name__ == "__main__":
    main()
