"""`orchestrate report`: write a run's report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.report_files import Format, Reported, render, write_pieces
from evalfleet.reports.model import ReportModel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """The options as parsed."""

    formats: tuple[Format, ...]
    arm: str | None
    output: Path | None
    source: Path | None
    grading: int | None


def _formats(_ctx: click.Context, _parameter: click.Parameter, value: str) -> tuple[Format, ...]:
    known = ", ".join(Format)
    chosen: list[Format] = []
    for name in filter(None, (part.strip() for part in value.split(","))):
        if name not in list(Format):
            raise click.BadParameter(f"{name!r} is not one of {known}")
        chosen.append(Format(name))
    if not chosen:
        raise click.BadParameter(f"name at least one of {known}")
    return tuple(dict.fromkeys(chosen))


@click.command()
@click.argument("run", required=False)
@click.option(
    "--format",
    "formats",
    metavar="FORMATS",
    default="text",
    callback=_formats,
    show_default=True,
    help="Any of text, json, md, junit, summary; separated by commas.",
)
@click.option("--arm", metavar="ARM", help="With json: the report of this arm, not one of each.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A file; for several formats a directory. Default: stdout."
)
@click.option(
    "--import",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check the report in this JSON file and write it in other formats.",
)
@options.grading_option
@options.json_option
@pass_application
def command(application: Application, run: str | None, **given: Any) -> None:
    """Write the report of RUN, or of a report file. --json is --format summary: the figures, without cases."""
    chosen = _Chosen(**given)
    formats = (Format.SUMMARY,) if application.json else chosen.formats
    if (run is None) == (chosen.source is None):
        raise click.UsageError("name a RUN, or a file by --import")
    if chosen.output is None and len(formats) > 1:
        raise click.ClickException("several formats need a directory: say -o DIRECTORY")
    if chosen.arm is not None and Format.JSON not in formats:
        raise click.UsageError("--arm goes with --format json")
    application.run(_report(application, run, formats, chosen))


async def _report(application: Application, run: str | None, formats: tuple[Format, ...], chosen: _Chosen) -> None:
    if chosen.source is not None:
        imported = await application.api.read_report(chosen.source)
        await _write(application, formats, chosen, imported.report, imported)
        return
    async with await application.api.open_run(run or "", chosen.grading) as handle:
        await _write(application, formats, chosen, await handle.report(), handle)


async def _write(
    application: Application, formats: tuple[Format, ...], chosen: _Chosen, report: ReportModel, run: Reported
) -> None:
    for form in formats:
        pieces = render(form, report, run, chosen.arm)
        if chosen.output is None:
            async for piece in pieces:
                click.echo(piece, nl=False)
            continue
        target = _target(chosen.output, form, alone=len(formats) == 1)
        await write_pieces(target, pieces)
        application.note(f"wrote {target}")


def _target(output: Path, form: Format, *, alone: bool) -> Path:
    """The file itself, or one in the directory when there are several formats or `output` is a directory."""
    return output if alone and not output.is_dir() else output / form.file_name
