# SPDX-License-Identifier: Apache-2.0
"""The command ``hardcase-edge``: ``run``, ``verify``, ``measure``, ``store``, ``enrol``, ``service`` and ``doctor``.

``run`` (``running``) makes decisions until it is stopped, ``verify`` checks a bundle and prints what was proved,
``measure`` times its sensors, ``store`` keeps the bundles that a device runs and tries, ``enrol`` gets its certificate,
``service`` prints the systemd unit of a run, and ``doctor`` reports what the machine has installed and what is wrong
with it. Decisions are JSON lines on stdout; everything else goes to stderr. The exit status is 0 after a clean end,
SIGTERM and Ctrl-C included, 2 after an error, which is printed on one line, and 141 if the reader of stdout has left.
Neither a full disk nor a reader who has left ends a run that has a broker; without a broker, the run ends with its
reader.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from . import __version__
from .base.escape import json_line, terminal
from .device.output import Lines, hold_standard_files, note, print_text
from .errors import HardcaseError, InputError
from .settings.config import RunConfig
from .settings.table import GROUPS, OWN, RUN_TOML, SOURCES, declare

READER_LEFT = 141  # the exit status that shells give to a program that a broken pipe has ended (128 + SIGPIPE)
END_S = 1.0  # how long threads and exit handlers of a plug-in may keep the process alive


class Parser(argparse.ArgumentParser):
    """Reports a wrong argument on one line. Measures the terminal only for ``--help``, because that takes 0.6 MB.

    ``finish`` makes of what was parsed what the verb gets; None: it stays as it is.
    """

    finish: Callable[[Parser, argparse.Namespace], argparse.Namespace] | None = None

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, formatter_class=lambda prog: argparse.HelpFormatter(prog, width=80))

    def format_help(self) -> str:
        """The help, as wide as the terminal."""
        self.formatter_class = argparse.HelpFormatter
        return super().format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse, and then ``finish``."""
        parsed, rest = super().parse_known_args(args, namespace)
        return (parsed if self.finish is None else self.finish(self, parsed)), rest

    def error(self, message: str) -> NoReturn:
        """End with exit status 2 and one line that begins with the program's name."""
        self.exit(2, f"{self.prog.split()[0]}: {terminal(' '.join(message.split()))}; see {self.prog} --help\n")


def _with_file(parser: Parser, parsed: argparse.Namespace) -> argparse.Namespace:
    """What ``run`` gets, as ``config``: its words, and the values of the file ``--config`` for what they leave out."""
    given = vars(parsed)
    if (path := given.pop("config")) is not None:
        from .settings.run_toml import read_settings

        try:
            given = {**read_settings(path), **given}
        except InputError as error:
            parser.error(str(error))
    if "sensors" not in given:
        parser.error("the following arguments are required: --sensors")
    lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}  # of repeated flags
    return argparse.Namespace(config=RunConfig(**{**given, **lists}))


def make_parser() -> argparse.ArgumentParser:
    """The parser of all verbs."""
    parser = Parser(prog="hardcase-edge", description="Decide on the device, forward the hard cases.")
    parser.add_argument("--version", action="version", version=f"hardcase-edge {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", prog=parser.prog)
    run = verbs.add_parser("run", help="decide, one JSON line per decision, until stopped")
    run.finish = _with_file
    run.add_argument(
        "--config", metavar="FILE", help="a run.toml, whose keys are these flags; a flag overrides its key"
    )
    for title, settings in GROUPS.items():
        declare(run.add_argument_group(title), settings, only_given=True)
    declare(run, OWN, only_given=True)
    verify = verbs.add_parser("verify", help="check a bundle and print what was proved")
    verify.add_argument("--json", action="store_true", help="print one JSON object")
    doctor = verbs.add_parser("doctor", help="report what this machine has installed, and what is wrong, in order")
    doctor.add_argument("--build", action="store_true", help="compile the kernel into the installed package")
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    doctor.add_argument("run", nargs=argparse.REMAINDER, metavar="run ...", help="a command to examine, unchanged")
    _service_arguments(verbs.add_parser("service", help="print the systemd unit of a run"))
    help_of_bundle = "the .hcb file; with --trust, its signature is read from BUNDLE.sig"
    verify.add_argument("bundle", help=help_of_bundle)
    _enrol_arguments(verbs.add_parser("enrol", help="get this device's certificate by its claim, or renew it"))
    put = _store_arguments(verbs.add_parser("store", help="keep the bundles that a device runs, and try new ones"))
    put.add_argument("bundle", help=help_of_bundle)
    measure = verbs.add_parser("measure", help="time and weigh each sensor, and propose costs for hardcase.toml")
    _measure_arguments(measure)
    for verb in (verify, put, measure):
        verb.add_argument("--trust", metavar="KEY", help="Ed25519 public key (PEM) that must have signed the bundle")
    return parser


def _store_arguments(store: argparse.ArgumentParser) -> argparse.ArgumentParser:
    actions = store.add_subparsers(dest="action", required=True, metavar="ACTION", prog=store.prog)
    show = actions.add_parser("show", help="print what runs, and what each slot holds")
    show.add_argument("--json", action="store_true", help="print one JSON object")
    put = actions.add_parser("put", help="check a bundle and keep it for a trial at the next start")
    trust = actions.add_parser("trust", help="begin with a root of TUF metadata, which then decide what may be put")
    for action in (show, put, trust):
        action.add_argument("folder", help="the store's folder")
    put.add_argument("--metadata", metavar="FOLDER", help="newer metadata: a TUF repository's JSON files")
    put.add_argument(
        "--replace-program", action="store_true",
        help="take it even if it decides something else, or by other sensors, than what runs",
    )  # fmt: skip
    trust.add_argument("root", help="the root's JSON file, which you vouch for")
    return put


def _service_arguments(service: argparse.ArgumentParser) -> None:
    service.add_argument("--config", metavar="FILE", help=f"write the arguments there, for a unit that runs {RUN_TOML}")
    service.add_argument("--program", help="absolute path of hardcase-edge on the device (default: this one)")
    service.add_argument("--device", metavar="FILE", action="append", default=[], help="file below /dev; repeatable")
    service.add_argument("--group", action="append", default=[], help="group that may open such files; repeatable")
    service.add_argument("run", nargs=argparse.REMAINDER, metavar="run ...", help="the command that the unit starts")


def _enrol_arguments(enrol: argparse.ArgumentParser) -> None:
    enrol.add_argument("--identity", metavar="FOLDER", required=True, help="the folder of the identity or the claim")
    enrol.add_argument("--broker", metavar="URL", required=True, help="mqtts://host:port for devices")
    enrol.add_argument("--ca", help="PEM file of the authorities that may sign the broker's certificate")
    enrol.add_argument("--device-id", metavar="ID", help="the name to ask for (default: host and machine)")
    enrol.add_argument("--wait-s", type=float, default=30.0, help="how long to wait (default %(default)s)")
    enrol.add_argument("--json", action="store_true", help="print one JSON object")


def _measure_arguments(measure: argparse.ArgumentParser) -> None:
    measure.add_argument(
        "policy", help="the .hcb file, the hardcase.toml (a name ends with .toml), or a plug-in's module"
    )
    measure.add_argument("--reads", type=int, default=20, help="how often each sensor is read (default %(default)s)")
    measure.add_argument(
        "--power", metavar="KIND:DEVICE",
        help="what weighs sensors: a power sensor such as hwmon:ina219/power1 or rapl:package-0, or recording:FILE",
    )  # fmt: skip
    measure.add_argument("--instructions", type=int, metavar="N", help="of a decision: model its energy, read nothing")
    measure.add_argument("--processor", metavar="NAME", help="that runs them, such as stm32l100 or 3.0V,3.3mA,64MHz")
    measure.add_argument("--json", action="store_true", help="print one JSON object")
    measure.add_argument("--out", metavar="FILE", help="times of items of every size, one a line, for hardcase costs")
    measure.add_argument("--repeat", type=int, default=20, help="reads of each size (default %(default)s)")
    declare(measure, SOURCES, only_given=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status. Without ``argv``, it is the whole process that runs it."""
    hold_standard_files()
    args = make_parser().parse_args(argv)
    args.is_process, args.words = argv is None, list(sys.argv[1:] if argv is None else argv)
    status = _status(args)
    if argv is None and f"{__package__}.sensors.plugin" in sys.modules:  # foreign code may have left something
        _end_within(END_S, status)
    return status


def _status(args: argparse.Namespace) -> int:
    gc.disable()  # there is no garbage yet, and collections would take 3 % of the time to the first answer
    try:
        verbs = {
            "run": _run, "verify": _verify, "measure": _measure, "store": _store, "enrol": _enrol,
            "service": _service, "doctor": _doctor,
        }  # fmt: skip
        return verbs[args.verb](args)
    except HardcaseError as error:
        note(" ".join(str(error).split()))
        return 2
    except ModuleNotFoundError as error:
        if error.name != "paho":
            raise
        note("paho-mqtt is missing, and a broker needs it; install it: pip install paho-mqtt")
        return 2
    except BrokenPipeError:
        return READER_LEFT
    except KeyboardInterrupt:
        return 0
    finally:
        gc.enable()


def _end_within(seconds: float, status: int) -> None:
    """End the process after that time at the latest, whatever threads a plug-in has left behind."""
    import threading
    import time

    def end() -> None:
        time.sleep(seconds)
        os._exit(status)

    threading.Thread(target=end, daemon=True).start()


# ---------------------------------------------------------------- run and verify


def run_config(words: Sequence[str]) -> RunConfig:
    """The settings of a command ``run``; ends the process if they are wrong.

    Raises
    ------
    InputError
        It is another command.
    """
    if words[:1] != ["run"]:
        raise InputError(
            f"{' '.join(words[:1])!r} is not the command run; name the whole command: run --store FOLDER ..."
        )
    config: RunConfig = make_parser().parse_args(words).config
    return config


def _run(args: argparse.Namespace) -> int:
    from .running.run import run

    return run(args.config, args.words, is_process=args.is_process)


def _verify(args: argparse.Namespace) -> int:
    from .bundle.load import load_bundle
    from .fleet.diagnosis.verified import verified, windows_in_words

    report = verified(load_bundle(args.bundle, trust=args.trust, allow_joint=True), is_signed=args.trust is not None)
    if not args.json:
        report["windows"] = windows_in_words(report["windows"])
    _print_report(report, as_json=args.json)
    return 0


def _print_report(report: dict[str, Any], *, as_json: bool) -> None:
    width = max(map(len, report))
    lines = (
        [json_line(report)]
        if as_json
        else [terminal(f"{k:<{width}}  {'-' if v is None else v}") for k, v in report.items()]
    )
    print_text("".join(f"{line}\n" for line in lines))


def _measure(args: argparse.Namespace) -> int:
    from .more.measuring.measure import MeasureConfig, measure

    return measure(MeasureConfig(**{key: getattr(args, key) for key in MeasureConfig.__annotations__}))


# ---------------------------------------------------------------- store


def _store(args: argparse.Namespace) -> int:
    from .fleet.store.folder import Store
    from .fleet.store.receive import begin_trust, receive
    from .fleet.store.show import describe

    store = Store(args.folder)
    if args.action == "show":
        _print_report(describe(store), as_json=args.json)
    elif args.action == "trust":
        note(f"the store trusts root {begin_trust(store, args.root).root.version}")
    else:
        slot, digest = receive(
            store, args.bundle, key=args.trust, metadata=args.metadata, replaces=args.replace_program
        )
        told = f"is in slot {slot}, for a trial at the next start" if slot else "is in the store already"
        note(f"the bundle {digest[:16]} {told}")
    return 0


# ---------------------------------------------------------------- service and enrol


def _service(args: argparse.Namespace) -> int:
    from .running.service import unit_of

    run, about = run_config(args.run), {"devices": args.device, "groups": args.group}
    print_text(unit_of(run, args.run, program=args.program, argv0=sys.argv[0], settings=args.config, **about))
    return 0


def _enrol(args: argparse.Namespace) -> int:
    from .fleet.identity.by_hand import enrol_now

    report = enrol_now(args.identity, args.broker, device=args.device_id or "", ca=args.ca, wait_s=args.wait_s)
    _print_report(report, as_json=args.json)
    return 0


# ---------------------------------------------------------------- doctor


def _doctor(args: argparse.Namespace) -> int:
    from .device.doctor import build_kernel, examine
    from .fleet.diagnosis.examine import faults
    from .running.checks import faults_of_settings

    if args.build:
        note(f"built {build_kernel()}")
    run = run_config(args.run) if args.run else None
    refused = faults_of_settings(run) if run is not None else []
    with Lines(ends_with_reader=True):  # what a plug-in prints is not in the report
        wrong = refused + [fault for fault in faults(run) if fault.what not in [r.what for r in refused]]
    if args.json:
        print_text(json_line({**examine(), "faults": [fault.to_json() for fault in wrong]}) + "\n")
        return int(bool(wrong))
    _print_report(examine(), as_json=False)
    hint = "" if run is not None else " with this machine; to examine a run: hardcase-edge doctor run ..."
    lines = [terminal(f"{k}. {fault}") for k, fault in enumerate(wrong, 1)] or [f"no fault found{hint}"]
    print_text("\n".join(lines) + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
