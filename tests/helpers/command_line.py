"""Commands as users type them, for tests of any room."""

from typer.testing import CliRunner

from safeimpute.cli import app

QUICK = """
[paper.gcn]
epochs = 40
"""


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output
