"""A tuning database in SQL, for several tuners at a time: SQLite by default, PostgreSQL for teams.

``schema`` is what the tables hold, ``engine`` how they are reached and locked, ``store`` what is asked of them in plain
data, ``sql_database`` the :class:`Database` over it; ``migrations`` bring older files up to date, ``journals`` carries
records from and to the files of JSONDatabase.
"""

from ....support.errors import MissingExtraError

try:
    import sqlalchemy
except ImportError as err:
    raise MissingExtraError("db", "sqlalchemy", "the SQL database") from err

from .sql_database import SQLDatabase

__all__ = ["SQLDatabase"]
