# SPDX-License-Identifier: Apache-2.0
"""A trained policy: its Pareto front, and its export to bundles and C sources."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hardcase_edge.base.escape import terminal
from hardcase_edge.errors import InputError
from hardcase_export.bundle import export_bundle, make_bundle
from hardcase_export.checked import Exported
from hardcase_export.drafts.front import Front as Points
from hardcase_export.drafts.front import Point
from hardcase_export.integers.point import Build
from hardcase_export.picking.pick import as_picked
from hardcase_export.targets import Output

from ..exports.said import told
from ..exports.targets import Wished, target_of
from ..training.folders import BUILD, whole_folder
from .arguments import check_names, names_of


class Policy:
    """The result of ``hardcase.train``: a build folder, and the requested point of its front.

    Parameters
    ----------
    build : a folder as ``hardcase train`` writes it, or what is in memory of it
    max_loss, budget : the wish that picks a point; ``budget`` wins, and with neither it is as ``hardcase export``'s.
        A budget may be met by two points, which a coin mixes
    is_temporary : whether the folder is removed with the policy

    Attributes
    ----------
    front : Front

    Examples
    --------
    ``Policy("build")`` opens what the command line trained; ``policy.export("pump.hcb", key="key.pem")`` signs it.
    """

    def __init__(
        self,
        build: str | Path | Build,
        *,
        max_loss: float | None = None,
        budget: float | None = None,
        is_temporary: bool = False,
    ) -> None:
        self._build = build if isinstance(build, Build) else Build(build)
        self._wish: dict[str, Any] = {"max_loss": max_loss} if budget is None else {"budget": budget}
        front, folder = self._build.front, self._build.folder
        svg = (folder / "front.svg").read_text(encoding="utf-8")
        self.front = Front(front, as_picked(front, self._wish), svg[max(svg.find("<svg"), 0) :])
        if is_temporary:  # a wish that no point meets leaves the folder, because training may have taken hours
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def export(self, path: str | Path, *, key: str | Path | None = None, **options: Any) -> Exported:
        """Quantise, verify, compare with the floats, sign, and write the bundle; the report of it, ``said`` in words.

        What ``hardcase export`` warns of, such as a class that is lost, is a Python warning.

        Parameters
        ----------
        path : of the bundle, such as "pump.hcb"
        key : a private key of ``hardcase keygen``, or None for a bundle without a signature
        options : of ``hardcase_export.make_bundle``, such as ``force``, or ``allow_constant`` for a policy that
            reads nothing; a wish there wins over the policy's

        Raises
        ------
        InputError, BundleError
            The file cannot be written, or the program cannot be proved.
        """
        check_names("export", options, ["force", *names_of(make_bundle)])
        return told(export_bundle(self._build, path, key=key, **self._wished(options)), self._build)

    def export_to(
        self,
        target: str,
        folder: str | Path,
        *switches: str,
        key: str | Path | None = None,
        force: bool = False,
        **options: Any,
    ) -> Output:
        """Write the folder of a target, such as "c", "onnx" or "tflite"; what was written, with its figures.

        Parameters
        ----------
        switches : of the target, such as "inline" of "c"
        key : a private key that signs the bundle which a folder of C sources holds
        force : whether the folder may hold something else, whose files of other names stay
        options : of ``hardcase_export.make_bundle``, such as ``allow_constant``

        Raises
        ------
        InputError, BundleError
            There is no such target or switch, the target cannot hold this policy, or the folder cannot be written.
        """
        check_names("export_to", options, names_of(make_bundle))
        wished = Wished(force=force)
        wished.add(target, target_of(target, switches), Path(folder), frozenset(switches))
        made = make_bundle(self._build, key=key, **({"mix": wished.mixes} | self._wished(options)))
        wished.make(made.source)
        wished.write()
        told(made.exported, self._build)
        return wished.outputs[target]

    def export_c(self, folder: str | Path, *, inline: bool = False, **options: Any) -> Output:
        """C99 sources for a microcontroller, with the bundle, as by ``export_to``; ``inline``: trees as code."""
        return self.export_to("c", folder, *["inline"] * inline, **options)

    def _wished(self, options: dict[str, Any]) -> dict[str, Any]:
        """These options, with the policy's own wish if they state none."""
        return options if {"max_loss", "budget", "hard_budget", "terms"} & options.keys() else self._wish | options

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Keep the build: drafts, rows, front and f0 (``hpc.onnx``), for ``hardcase export`` and ``hardcase cloud``.

        Raises
        ------
        InputError
            The folder holds something that is not a build, which ``force`` allows, or cannot be written.
        """
        out = Path(folder)
        with whole_folder(out, BUILD, force=force) as new:
            shutil.copytree(self._build.folder, new, dirs_exist_ok=True)
        return out

    def __repr__(self) -> str:
        figures = self.front.picked.test
        return (
            f"<Policy {self.front.picked.method}: {terminal(self.front.quality)} {figures.quality:.4f}, "
            f"cost {figures.cost:g} {terminal(self.front.unit)}, {figures.forward_rate:.1%} forwarded>"
        )

    def _repr_html_(self) -> str:
        return self.front._repr_html_()


# The Pareto front of a trained policy, as a table and a plot.


class Front:
    """Cost and accuracy of every trained policy, and the picked one.

    Attributes
    ----------
    unit : of costs
    quality : the name of what is measured, such as "accuracy"
    points : every policy of the front, f0 first; ``valid`` figures made the choices, ``test`` figures are only reported
    picked : the policy that the wish picks, by its figures on the judged rows

    Examples
    --------
    In a notebook, a front shows itself as a picture; elsewhere ``print(policy.front)`` gives ``table()``.
    """

    def __init__(self, front: Points, picked: Point, svg: str) -> None:
        self._svg = svg
        self.unit, self.quality = front.unit, front.quality
        self.points: Sequence[Point] = front.points
        self.picked = picked

    def table(self) -> str:
        """A line for f0, for the picked policy and for the best policy of every method, figures on test rows.

        The best of a method is that of the highest quality on the judged rows; the picked policy may be a cheaper one
        of the same method.
        """
        f0, picked = self._of("hpc")[0], self.picked
        unit = terminal(self.unit)
        lines = [f"{'policy':<22}{terminal(self.quality):>10}{f'mean cost ({unit})':>18}{'forwarded':>11}"]
        shown = [("f0", f0), (f"picked: {picked.method if picked is not f0 else 'f0'}", picked)]
        for method in dict.fromkeys(p.method for p in self.points if p.method != "hpc"):
            best = max(self._of(method), key=lambda p: (p.valid.quality, -p.valid.cost))
            shown.append((f"best of {method}", best))
        for name, p in ((terminal(words), p) for words, p in shown):
            lines.append(f"{name:<22}{p.test.quality:>10.4f}{p.test.cost:>18.3f}{100 * p.test.forward_rate:>9.1f} %")
        return "\n".join([*lines, "figures on rows that no choice has seen"])

    def rows(self) -> list[dict[str, Any]]:
        """Every point as plain values, for a DataFrame."""
        return [
            {"method": p.method, "is_picked": p is self.picked}
            | {f"{rows}_{key}": getattr(getattr(p, rows), key) for rows in ("valid", "test")
               for key in ("quality", "cost", "forward_rate")}
            for p in self.points
        ]  # fmt: skip

    def _of(self, method: str) -> list[Point]:
        own = [p for p in self.points if p.method == method]
        if not own:
            raise InputError(f"the front has no point of {method!r}; train it")
        return own

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return self._svg
