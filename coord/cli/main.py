"""The `coordctl` command: names, one line each, and where each is found once it is called."""

from __future__ import annotations

import os
import sys

import click

from coord import __version__
from coord.cli.exits import EXIT_CODES, Exit
from coord.cli.lazy import Lazy, LazyGroup, ReaderGone

COMMANDS: dict[str, Lazy] = {
    "up": Lazy("coord.cli.up:up", "Run a whole cluster with local agents in this terminal."),
    "demo": Lazy("coord.cli.demo:demo", "Watch a training job survive three failures."),
    "server": Lazy("coord.cli.server:server", "Run one server of the cluster."),
    "agent": Lazy("coord.cli.agent:agent", "Run the agent of this host."),
    "relay": Lazy("coord.cli.relay:relay", "Run a relay: many agents behind one connection."),
    "job": Lazy(
        "coord.cli.jobs:job", "Submit, resize, roll back and cancel jobs; read their logs."
    ),
    "host": Lazy("coord.cli.hosts:host", "Look at hosts; drain, quarantine and remove them."),
    "maintenance": Lazy("coord.cli.maintenance:maintenance", "Take hosts of a domain out in turn."),
    "queue": Lazy(
        "coord.cli.queue:queue", "Look at queues and what they use; set and remove them."
    ),
    "topology": Lazy("coord.cli.topology:topology", "Import where hosts stand; show the tree."),
    "events": Lazy("coord.cli.events:events", "What happened, and what was decided."),
    "note": Lazy("coord.cli.events:note", "Write something down in the log."),
    "cluster": Lazy("coord.cli.cluster:cluster", "Look at the servers; add, remove, hand over."),
    "incident": Lazy(
        "coord.cli.incident:incident", "What went wrong and its cost; export the log."
    ),
    "diagnose": Lazy("coord.cli.diagnose:diagnose", "Read what failed ranks left behind."),
    "replay": Lazy("coord.cli.replay:replay", "Replay an incident file; no server needed."),
    "sim": Lazy("coord_sim.cli:sim", "Simulate: run clusters, take incidents apart, model fleets."),
    "faults": Lazy("jepsen_lite.cli:faults", "Break a real cluster under load, and judge it."),
    "completion": Lazy("coord.cli.completion:completion", "Print a shell's completion script."),
}


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", message="coord %(version)s")
@click.option("--debug", is_flag=True, envvar="COORD_DEBUG", help="Show tracebacks of errors.")
def cli(debug: bool) -> None:
    """Keep a fleet that trains models running, and explain afterwards what happened.

    The servers to talk to are given by --server or COORD_SERVER, several of them separated by
    commas; without either, those of `coordctl up`, http://127.0.0.1:7101 to 7103.
    Start with `coordctl demo`.
    """


def main() -> None:
    """Run coordctl and end the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; all that went wrong is on stderr by then."""
    try:
        result = cli.main(arguments, prog_name="coordctl", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return Exit.INTERRUPTED  # click has ended the line
    except KeyboardInterrupt:
        click.echo(err=True)
        return Exit.INTERRUPTED
    except (ReaderGone, BrokenPipeError):
        # What is still in the buffer must not fail when the interpreter flushes it at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as error:
        if "--debug" in arguments or os.environ.get("COORD_DEBUG"):
            raise
        click.echo(
            f"coordctl: a defect in coord: {type(error).__name__}: {error}\n"
            "What was asked may or may not have happened. "
            "Run it again as `coordctl --debug ...` and report what it prints.",
            err=True,
        )
        return Exit.UNKNOWN
    return result if isinstance(result, int) else Exit.OK


if __name__ == "__main__":
    main()
