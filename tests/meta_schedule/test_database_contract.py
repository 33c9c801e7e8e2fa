"""Every database does what databases do."""

import pytest

from relaxish.meta_schedule.database import Database, JSONDatabase, MemoryDatabase
from relaxish.testing import DatabaseContract


class TestMemoryDatabase(DatabaseContract):
    def make(self, folder):
        return MemoryDatabase()


class TestJSONDatabase(DatabaseContract):
    def make(self, folder):
        return JSONDatabase(work_dir=str(folder))


class TestSQLiteDatabase(DatabaseContract):
    def make(self, folder):
        pytest.importorskip("sqlalchemy")
        return Database.create("sql", work_dir=str(folder))


@pytest.mark.slow  # a server has to start
class TestPostgreSQLDatabase(DatabaseContract):
    @pytest.fixture(autouse=True)
    def server(self, postgres):
        self.address = postgres.fresh()

    def make(self, folder):
        return Database.create(self.address)
