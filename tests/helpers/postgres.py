"""A real PostgreSQL server for tests, and tables copied into it."""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def server_program(name: str) -> str:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which(name, path=os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip(f"PostgreSQL's {name} is not installed (Debian: apt-get install postgresql)")
    return found


def as_server_user(*command: str) -> None:
    """The server refuses to run as root."""
    switch = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    subprocess.run([*switch, *command], check=True, capture_output=True)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server of its own on a free port, with a password; stopped and removed afterwards."""
    initdb, control = server_program("initdb"), server_program("pg_ctl")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="safeimpute-pg-", dir="/tmp") as folder:
        home, password = Path(folder), secrets.token_urlsafe(12)
        (home / "password").write_text(password)
        if os.geteuid() == 0:
            shutil.chown(home, "postgres")
            shutil.chown(home / "password", "postgres")
        data = str(home / "data")
        sign_in = ["-U", "tester", f"--pwfile={home / 'password'}", "-A", "scram-sha-256"]
        as_server_user(initdb, "-D", data, *sign_in, "-E", "UTF8", "--no-sync")
        options = f"-p {port} -k {home} -c listen_addresses=127.0.0.1 -c fsync=off"
        as_server_user(control, "-D", data, "-w", "-l", str(home / "log"), "-o", options, "start")
        try:
            yield f"postgresql://tester:{password}@127.0.0.1:{port}/postgres"
        finally:
            as_server_user(control, "-D", data, "-m", "immediate", "stop")


def load(server: str, schema: str, types: dict[str, str], tables: dict[str, bytes]) -> None:
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")
        for name, text in tables.items():
            connection.execute(f"CREATE TABLE {schema}.{name} ({types[name]})")
            columns = text.split(b"\n", 1)[0].decode()
            copy = f"COPY {schema}.{name} ({columns}) FROM STDIN WITH (FORMAT csv, HEADER)"
            with connection.cursor().copy(copy) as stream:
                stream.write(text)
