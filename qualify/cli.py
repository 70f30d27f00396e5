"""Commands to functions, errors to exit codes. Every command imports what it needs when it runs: help stays quick."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Iterable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from qualify import garbage
from qualify.errors import Exit, NothingSelected, QualifyError
from qualify.unplugged import unplug

if TYPE_CHECKING:
    from qualify.judgement import RunVerdict
    from qualify.pipeline import Gates
    from qualify.plan import Plan

#: Commands that open a rig.
ON_RIGS = frozenset({"screen", "promote", "prove", "calibrate", "compare"})
app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="The gate between a faster GPU kernel and the dispatcher that selects it.",
)

tools = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Compilers: what is here, and more of them.")
app.add_typer(tools, name="toolkits")

Workspace = Annotated[
    Path | None, typer.Option("--workspace", help="Folder with pipelines.yaml; else the nearest parent that has one.")
]
Runs = Annotated[list[str], typer.Argument(help="Sealed screens of this workspace: names or folders.")]
Cells = Annotated[list[str] | None, typer.Option("--cell", help="Only these cells.")]
AnyPipeline = Annotated[str | None, typer.Option("--pipeline", help="One of pipelines.yaml; else that of the screen.")]
BoardName = Annotated[
    str | None, typer.Option("--board", help="The board's name: what was measured on another is proven at most here.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print verdict.json of every run instead of tables.")]


@app.callback()
def common() -> None:
    """Every command checks first that its own gates are the ones beside it."""
    _check_gates()


@app.command()
def init(
    operation: Annotated[str, typer.Argument(help="A name for the operation, such as my_add.")],
    workspace: Annotated[Path | None, typer.Option("--workspace", help="Where; here if left out.")] = None,
) -> None:
    """Begin: write a cohort that screens at once, to be edited into your own; nothing that is there is touched."""
    from qualify import starter

    for path in starter.init(workspace or Path.cwd(), operation):
        print(path)
    print(f"now: qualify screen {operation}")


@app.command()
def screen(
    operation: Annotated[str | None, typer.Argument(help="An operation of the workspace; all if left out.")] = None,
    workspace: Workspace = None,
    domain: Annotated[str | None, typer.Option(help="A toolkit or toolkit/arch of pipelines.yaml.")] = None,
    cell: Annotated[list[str] | None, typer.Option(help="Only these cells.")] = None,
    route: Annotated[list[str] | None, typer.Option(help="Only these candidates.")] = None,
    pipeline: Annotated[str, typer.Option(help="A pipeline of pipelines.yaml.")] = "default",
    until: Annotated[str | None, typer.Option(help="Stop after this gate; the verdict says partial.")] = None,
    candidates: Annotated[Path | None, typer.Option(help="Folder with <name>/route.yaml for each candidate.")] = None,
    as_json: AsJson = False,
    fail_on_reject: Annotated[bool, typer.Option("--fail-on-reject", help="Exit 10 if a candidate fails.")] = False,
) -> None:
    """Discover: run candidates through the gates and seal the evidence, losers included."""
    from qualify.screen import Request, Screening
    from qualify.workspace import find_workspace

    filters = frozenset(cell or ()), frozenset(route or ())
    request = Request(find_workspace(workspace), operation, domain, *filters, pipeline, until, candidates)
    with Screening(request) as screening:
        from gates import GATES
        from qualify import show

        screened = screening.run(GATES, show.Lines(quiet=as_json))
    _show_runs(screened.runs, as_json=as_json)
    show.say(*map(show.printable, screened.notes), *show.absent(screened.absent), *show.rig_errors(screened.rig_errors))
    raise typer.Exit(screened.exit_code(fail_on_reject=fail_on_reject))


@app.command()
def promote(
    runs: Runs,
    workspace: Workspace = None,
    cell: Cells = None,
    route: Annotated[
        list[str] | None, typer.Option(help="These routes instead of the one that looked fastest.")
    ] = None,
    pipeline: AnyPipeline = None,
    as_json: AsJson = False,
) -> None:
    """Qualify: take what passed a screen through the whole graph and admit what passes that."""
    _admit("promote", runs, workspace, cell, route, pipeline, as_json=as_json)


@app.command()
def prove(
    runs: Runs,
    workspace: Workspace = None,
    cell: Cells = None,
    route: Annotated[list[str] | None, typer.Option(help="This route of each cell, where several passed.")] = None,
    pipeline: AnyPipeline = None,
    as_json: AsJson = False,
) -> None:
    """Admit by bits alone: what passed a screen, on a board without an admission of the cell; no time is taken."""
    _admit("prove", runs, workspace, cell, route, pipeline, as_json=as_json)


@app.command()
def calibrate(
    operation: Annotated[str | None, typer.Argument(help="An operation of the workspace; all if left out.")] = None,
    workspace: Workspace = None,
    domain: Annotated[str | None, typer.Option(help="A toolkit or toolkit/arch of pipelines.yaml.")] = None,
    cell: Annotated[list[str] | None, typer.Option(help="Only these cells.")] = None,
    pipeline: Annotated[str, typer.Option(help="A pipeline of pipelines.yaml.")] = "default",
    as_json: AsJson = False,
) -> None:
    """Time plain against itself on this board and print its line for pipelines.yaml: margins and ceilings."""
    from gates import GATES
    from qualify import show
    from qualify.calibrate import Request
    from qualify.calibrate import calibrate as run
    from qualify.workspace import find_workspace

    request = Request(find_workspace(workspace), operation, domain, frozenset(cell or ()), pipeline)
    done = run(request, GATES, show.Lines(quiet=as_json))
    _show_runs(done.runs, as_json=as_json)
    for line in done.lines():
        print(show.printable(line), file=sys.stderr if as_json else sys.stdout)
    show.say(*show.absent(done.absent), *show.rig_errors(done.rig_errors))
    raise typer.Exit(done.exit_code())


@app.command()
def compare(
    operation: Annotated[str, typer.Argument(help="An operation of the workspace with comparators.")],
    workspace: Workspace = None,
    domain: Annotated[str | None, typer.Option(help="A toolkit or toolkit/arch of pipelines.yaml.")] = None,
    cell: Annotated[list[str] | None, typer.Option(help="Only these cells.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each reading as one line of JSON.")] = False,
) -> None:
    """Read: outside implementations beside the route that serves each cell; no verdict, and nothing is admitted."""
    from qualify import show
    from qualify.compare import Request
    from qualify.compare import compare as run
    from qualify.workspace import find_workspace

    request = Request(find_workspace(workspace), operation, domain, frozenset(cell or ()))
    done = run(request, show.Readings(as_json=as_json))
    show.say(*map(show.printable, done.unread), *show.absent(done.absent))
    raise typer.Exit(done.exit_code())


@app.command("verify-evidence")
def verify_evidence(
    runs: Annotated[list[Path] | None, typer.Argument(help="Folders of sealed runs; all if left out.")] = None,
    workspace: Workspace = None,
) -> None:
    """Prove: check every byte, judge every gate again, check the history of the store."""
    from qualify.evidence import report
    from qualify.evidence.released import Released
    from qualify.workspace import evidence_root, find_workspace

    rules = Released(_gates)
    if runs:
        raise typer.Exit(report.print_runs(runs, rules))
    root = evidence_root(find_workspace(workspace))
    if not root.exists():
        raise NothingSelected(f"there is no evidence at {root}", fix="run qualify screen first")
    raise typer.Exit(report.print_store(root, rules))


@app.command()
def report(
    runs: Annotated[list[str] | None, typer.Argument(help="Sealed runs of the store by name; all if left out.")] = None,
    workspace: Workspace = None,
) -> None:
    """Show runs that verify as markdown: subjects by gates, and what gates cost beside what was declared."""
    from qualify import show, summary
    from qualify.evidence.released import Released
    from qualify.workspace import evidence_root, find_workspace

    for line in summary.report(evidence_root(find_workspace(workspace)), runs or (), Released(_gates)):
        print(show.printable(line))


@app.command()
def check(
    operation: Annotated[str | None, typer.Argument(help="An operation of the workspace; all if left out.")] = None,
    workspace: Workspace = None,
) -> None:
    """Close loudly: every admission against the workspace as it is now, without a device; exit 10 if one is closed."""
    from qualify import inventory
    from qualify.workspace import find_workspace

    raise typer.Exit(inventory.check(find_workspace(workspace), operation))


@app.command()
def status(
    operation: Annotated[str | None, typer.Argument(help="An operation of the workspace; all if left out.")] = None,
    workspace: Workspace = None,
) -> None:
    """Show what serves every cell in every domain: measured or proven on which board, or plain, or closed and why."""
    from datetime import UTC, datetime

    from qualify import inventory
    from qualify.workspace import find_workspace

    raise typer.Exit(inventory.status(find_workspace(workspace), operation, datetime.now(UTC)))


@app.command()
def select(
    operation: Annotated[str, typer.Argument(help="An operation of the workspace.")],
    cell: Annotated[str, typer.Argument(help="One of its cells.")],
    domain: Annotated[str, typer.Option(help="Toolkit and architecture, such as pocl-3.0/znver3.")],
    board: BoardName = None,
    workspace: Workspace = None,
) -> None:
    """Serve a dispatcher: print as JSON the route to launch for a cell; plain wherever an admission does not hold."""
    from qualify import serving
    from qualify.workspace import find_workspace

    raise typer.Exit(serving.select(find_workspace(workspace), operation, cell, domain, board))


@app.command()
def export(
    operation: Annotated[str, typer.Argument(help="An operation of the workspace.")],
    domain: Annotated[str, typer.Option(help="Toolkit and architecture, such as pocl-3.0/znver3.")],
    as_c: Annotated[bool, typer.Option("--c", help="A C header instead of JSON.")] = False,
    board: BoardName = None,
    workspace: Workspace = None,
) -> None:
    """Serve a dispatcher that is built ahead: the route of every cell; plain wherever an admission does not hold."""
    from qualify import serving
    from qualify.workspace import find_workspace

    form: serving.Form = "c" if as_c else "json"
    raise typer.Exit(serving.export(find_workspace(workspace), operation, domain, form, board))


@app.command()
def withdraw(
    run: Annotated[str, typer.Argument(help="The name of a run of this workspace's evidence.")],
    reason: Annotated[str, typer.Option(help="Why nobody may rely on the run; it is kept for ever.")],
    workspace: Workspace = None,
) -> None:
    """Mark a run as not to be relied on: admissions that rest on it close. The mark never changes."""
    from qualify.evidence.store import Store, now_utc
    from qualify.workspace import evidence_root, find_workspace

    withdrawal = Store(evidence_root(find_workspace(workspace))).withdraw(Path(run).name, reason, now_utc())
    print(f"{withdrawal.run} is withdrawn; `qualify check` lists the admissions that this closes")


@tools.command("list")
def list_toolkits() -> None:
    """Say which toolkits are here, what each builds for and what it measures on."""
    from qualify import provision

    for line in provision.lines(provision.listed()):
        print(line)


@tools.command("install")
def install_toolkit(release: Annotated[str, typer.Argument(help="A CUDA release, such as 12.8.")]) -> None:
    """Bring a CUDA toolkit, a gigabyte at most, into a folder of its own in your cache; host gates need no more."""
    from qualify import provision

    folder, described = provision.install(release)
    print(f"{folder} is there already" if described is None else f"{described.toolkit_build} is now in {folder}")


def _show_runs(runs: Iterable[tuple[Path, Plan, RunVerdict]], *, as_json: bool) -> None:
    """Sealed runs as tables with reasons, or as their verdict.json."""
    from gates import GATES
    from qualify import show

    for folder, plan, verdict in runs:
        if as_json:
            sys.stdout.write((folder / "verdict.json").read_text(encoding="ascii"))  # As it was sealed.
            continue
        show.table(verdict, plan)
        for line in (*show.reasons(verdict, plan, GATES), *show.findings(verdict)):
            print(line)
        print(f"evidence: {folder}")


def _gates() -> Gates:
    from gates import GATES

    return GATES


def _admit(
    command: str, runs: Runs, workspace: Workspace, cell: Cells, route: Cells, pipeline: AnyPipeline, *, as_json: bool
) -> NoReturn:
    """Promote or prove sealed screens, and end the command with what that left."""
    from gates import GATES
    from qualify import promote, show
    from qualify.workspace import find_workspace

    filters = frozenset(cell or ()), frozenset(route or ())
    request = promote.Request(find_workspace(workspace), tuple(runs), *filters, pipeline)
    act = {"promote": promote.promote, "prove": promote.prove}[command]
    promoted = act(request, GATES, show.Lines(quiet=as_json))
    _show_runs(promoted.runs, as_json=as_json)
    for line in promoted.lines():
        print(show.printable(line), file=sys.stderr if as_json else sys.stdout)
    show.say(*show.rig_errors(promoted.rig_errors))
    raise typer.Exit(promoted.exit_code())


def _begin_workers() -> None:
    """What workers are forked from loads its libraries while this process loads its own."""
    from qualify import templates

    templates.begin()


def _check_gates() -> None:
    """Refuse a `gates` package that does not lie beside `qualify`: another one would judge."""
    spec = importlib.util.find_spec("gates")
    beside = Path(__file__).resolve().parent.parent / "gates"
    found = Path(spec.origin).resolve().parent if spec and spec.origin else None
    if found != beside:
        from qualify.errors import RigError

        raise RigError(
            f"expected the package gates at {beside}, got {found}",
            fix="run from another folder, or remove the other package named gates from the path",
        )


def main() -> NoReturn:
    """Run a command; the exit code is one of `qualify.errors.Exit`. Any other exception is a bug: a traceback and 1."""
    signal.signal(signal.SIGTERM, _interrupt)
    garbage.seldom()
    unplug()
    if ON_RIGS & {*sys.argv[1:2]} and "--help" not in sys.argv:
        _begin_workers()
    try:
        code = _called()(standalone_mode=False)
    except QualifyError as error:
        print(f"qualify: {error}", file=sys.stderr)
        code = error.exit
    except KeyboardInterrupt:
        print("qualify: interrupted", file=sys.stderr)
        code = Exit.INTERRUPTED
    except typer.Abort:
        code = Exit.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Exit.DONE
    except Exception as error:  # noqa: BLE001 -- only what is no usage error is raised again, as a bug.
        code = _usage(error)
    garbage.leave(int(code or 0))


def _called() -> typer.Typer:
    """The command that the command line begins with, alone: the parameters of all others are not looked at."""
    names = {each.name or getattr(each.callback, "__name__", ""): each for each in app.registered_commands}
    alone = copy(app)
    if called := [names[word] for word in sys.argv[1:2] if word in names]:
        alone.registered_commands, alone.registered_groups = called, []
    return alone


def _usage(error: Exception) -> int:
    """A wrong flag or argument, in the words of the command line parser; anything else is a bug and raised again."""
    show = getattr(error, "show", None)
    if show is None:
        raise error
    show()
    return int(Exit.USAGE)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
