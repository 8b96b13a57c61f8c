"""What the documentation site makes while it is built: pages of the commands and the project, and option tables.

A hook of mkdocs (mkdocs.yml). `<!-- options: claim, promise -->` on a page becomes the table of these options, made
from settings.py, as the page of all options is; `commands.md` is made from the command line itself.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference_pages import catalogue_page, option_table, options_page

from safeimpute.cli import app
from safeimpute.machine.options import TableFormat, declared
from safeimpute.settings import Settings
from safeimpute.visits.catalogue import load_catalogue

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
PROJECT = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}
MARK = re.compile(r"<!-- options: ([\w, ]+) -->")
COMMANDS = """# Commands

Made from the command line itself. `safeimpute COMMAND --help` says the same. Options of a fit stand with their ranges
on the page [Options](options.md).
"""
CITING = """# Citing

Please cite the version you used; `safeimpute --version` says which, and so does `run.json` of every run.

```yaml
{citation}
```

The method goes back to He et al., *SafeImpute: Reliable Clinical Data Imputation via Conformal Selection*, KDD 2026,
doi:10.1145/3770855.3817967, and to Jin and Candès, *Selection by Prediction with Conformal p-values*, JMLR 2023.
"""


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """The pages that stand elsewhere or nowhere."""
    from mkdocs.structure.files import File

    for name, text in made_pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Option tables where a page asks for them."""
    return with_options(markdown)


def with_options(markdown: str) -> str:
    """Marks replaced by tables; a name that is no option is an error."""
    return MARK.sub(lambda found: options_named(re.split(r",\s*", found[1])), markdown)


def options_named(names: list[str]) -> str:
    """The table of these options."""
    known = {each.name: each for each in (*declared(TableFormat), *declared(Settings))}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no such option: {', '.join(unknown)}")
    return option_table([known[name] for name in names])


def made_pages() -> dict[str, str]:
    """By name in the site."""
    project = {name: site_links((ROOT / file).read_text(encoding="utf-8")) for name, file in PROJECT.items()}
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8").strip()
    return {
        **project,
        "citing.md": CITING.format(citation=citation),
        "commands.md": commands_page(),
        "options.md": options_page(),
        "catalogue.md": catalogue_page(load_catalogue()),
    }


def site_links(text: str) -> str:
    """Links of a page at the repository's root as they are from the site: `docs/` falls away, files get no link."""
    text = re.sub(r"\]\(docs/", "](", text)
    for name, file in PROJECT.items():
        text = text.replace(f"]({file})", f"]({name})")
    return re.sub(r"\[([^\]]+)\]\((?:src|lab|tools|tests|examples)/[^)]*\)", r"\1", text)


def commands_page() -> str:
    """Every command with its arguments and flags."""
    import typer

    group: Any = typer.main.get_command(app)
    context = typer.Context(group)
    names = group.list_commands(context)
    return "\n".join([COMMANDS, *(_command(name, group.get_command(context, name)) for name in names)])


def _command(name: str, command: Any) -> str:
    said = [each for each in command.params if not getattr(each, "hidden", False) and each.name != "help"]
    arguments = " ".join(str(each.name).upper() for each in said if each.param_type_name == "argument")
    rows = [_row(each) for each in said if each.param_type_name == "option"]
    head = f"## safeimpute {name}\n\n{_plain(command.help)}\n\n```\nsafeimpute {name} {arguments}".rstrip()
    return "\n".join([f"{head} [OPTIONS]\n```\n", "| flag | meaning |", "|---|---|", *rows, ""])


def _row(option: Any) -> str:
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    return f"| {flags} | {_plain(option.help)} |"


def _plain(text: str | None) -> str:
    """One line that neither breaks a table nor reads as markup."""
    line = " ".join((text or "").split())
    return re.sub(r"([|<>*_\[\]])", r"\\\1", line)
