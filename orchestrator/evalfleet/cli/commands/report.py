"""`orchestrate report`: write a run's report."""

from __future__ import annotations

from pathlib import Path

import click

from evalfleet.cli import options
from evalfleet.cli.application import Application, pass_application
from evalfleet.cli.report_files import Format, render, write_pieces


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
@options.run_argument
@click.option(
    "--format",
    "formats",
    metavar="FORMATS",
    default="text",
    callback=_formats,
    show_default=True,
    help="Any of text, json, md, junit; separated by commas.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A file; for several formats a directory. Default: stdout."
)
@options.grading_option
@options.json_option
@pass_application
def command(
    application: Application, run: str, formats: tuple[Format, ...], output: Path | None, grading: int | None
) -> None:
    """Write the report of RUN. --json is --format json."""
    chosen = (Format.JSON,) if application.json else formats
    if output is None and len(chosen) > 1:
        raise click.ClickException("several formats need a directory: say -o DIRECTORY")
    application.run(_report(application, run, grading, chosen, output))


async def _report(
    application: Application, run: str, grading: int | None, formats: tuple[Format, ...], output: Path | None
) -> None:
    async with await application.api.open_run(run, grading) as handle:
        report = await handle.report()
        for form in formats:
            pieces = render(form, report, handle)
            if output is None:
                async for piece in pieces:
                    click.echo(piece, nl=False)
                continue
            target = _target(output, form, alone=len(formats) == 1)
            await write_pieces(target, pieces)
            application.note(f"wrote {target}")


def _target(output: Path, form: Format, *, alone: bool) -> Path:
    """The file itself, or one in the directory when there are several formats or `output` is a directory."""
    return output if alone and not output.is_dir() else output / form.file_name
