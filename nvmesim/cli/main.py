"""The group of commands, and how its errors become one line and an exit code."""

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from nvmesim.errors import NvmesimError, nearest
from nvmesim.version import __version__

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # arrays are small: its threads would only spin

DONE, BAD_INPUT, INFRASTRUCTURE, INTERRUPTED = 0, 2, 3, 130
DISKS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG})
"""Errors of a disk that is full or broken: no fault of the input."""
OUTPUTS: Final = ("-o", "--output", "--out", "--html")
"""Options that other commands, or other programs, write a file by."""
LONGEST: Final = 1500
"""Characters of an error on the terminal."""

COMMANDS: Final = {
    # command: module of nvmesim.cli that has it under the same name, - as _
    "init": "init",
    "run": "run",
    "calibrate": "calibrate",
    "trace": "reading",
    "measure": "measure_commands",
    "capture-plan": "measure_commands",
    "catalog": "reading",
    "size": "design_commands",
    "validate": "calibrate",
    "describe": "reading",
    "sweep": "run",
    "best": "design_commands",
    "choose": "design_commands",
    "compare": "design_commands",
    "sensitivity": "design_commands",
    "diagnose": "design_commands",
    "ui": "init",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now, or None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"nvmesim.cli.{COMMANDS[cmd_name]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest name in the error."""
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            raise click.UsageError(f"no command {args[0]!r}; {nearest(args[0], known)}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: nvmesim run server.toml --set drives.0.count=8",
)
@click.version_option(__version__, prog_name="nvmesim", message="%(prog)s %(version)s")
def nvmesim() -> None:
    """Predict how NVMe storage scales before the hardware is bought.

    Exit codes: 0 done; 1 ran, but the asked precision or budget was not met, or the load has no
    steady state; 2 bad input or usage; 3 infrastructure failed (a scheduler, a disk), what was
    finished is kept; 130 interrupted, what was finished is kept.
    """


def run_command(arguments: Sequence[str]) -> int:
    """Run the command line *arguments* and return its exit code; every error is one line."""
    try:
        code = nvmesim.main(list(arguments), prog_name="nvmesim", standalone_mode=False)
    except NvmesimError as error:
        return _complain(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        return BAD_INPUT
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        text = error.format_message()
        if isinstance(error, click.NoSuchOption) and context and error.option_name in OUTPUTS:
            known = (name for option in context.command.params for name in option.opts)
            text += " Did you mean '--report'?" * ("--report" in known)
        hint = f" (see {context.command_path} --help)" if context else ""
        return _complain(text + hint, BAD_INPUT)
    except (click.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, EOFError):  # click takes one for the end of a prompt
            return _complain("a file ends before it is complete; copy or make it anew", BAD_INPUT)
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone: nothing is left to say, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        code = INFRASTRUCTURE if error.errno in DISKS else BAD_INPUT
        return _complain(f"{where}{error.strerror or error}", code)
    except MemoryError:
        return _complain("needs more memory than there is", BAD_INPUT)
    return code if isinstance(code, int) else DONE


def _complain(text: str, code: int) -> int:
    from nvmesim.show.words import one_line

    # What to do stands at the end; what a hostile file calls itself stands between.
    shown = text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    click.echo(f"nvmesim: {one_line(shown)}", err=True)
    return code


def main() -> NoReturn:
    """Run the command line of this process."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = run_command(sys.argv[1:])
    except KeyboardInterrupt:  # pressed while the last words were said
        code = INTERRUPTED
    sys.exit(code)
