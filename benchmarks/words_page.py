# SPDX-License-Identifier: Apache-2.0
"""The page and the picture of ``words.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from benchmarks.pages import PAGES, markdown, pyplot, rest, save

SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
SHOWN = (0.1, 0.2, 0.3, 0.5)
NAMED = ("myopic", "one-shot simple", "gap", "one-shot complex", "gap, decoded again", "anytime")
DRAWN = ("uniform letters", "myopic", "own margin", "gap", "one-shot simple", "one-shot complex", "anytime")


def interval(values: Any) -> str:
    """Mean with a 95 % interval, in points."""
    values = 100 * np.asarray(values, dtype=float)
    if len(values) < 2:
        return f"{values.mean():+.2f}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.2f} ± {half:.2f}"


def runs(results: dict[str, Any], kind: str) -> dict[int, Any]:
    """The results of a kind by split; those of anytime policies are beside those of the random splits."""
    found = {int(k.split("/")[1]): v for k, v in results.items() if k.startswith(f"{kind}/")}
    if kind == "random":
        for split, run in found.items():
            run["curves"] |= results.get(f"anytime/{split}", {"curves": {}})["curves"]
    return dict(sorted(found.items()))


def at(run: Any, name: str, share: float) -> float:
    """Accuracy of a policy at a share."""
    return float(run["curves"][name][SHARES.index(share)])


def table(found: dict[int, Any]) -> list[str]:
    """Accuracies, losses against HOG everywhere, and what a policy adds to the gap."""
    every = list(found.values())
    cheap, full = (np.mean([run[k] for run in every]) for k in ("cheap", "all"))
    lines = [f"{len(every)} splits; without HOG {cheap:.4f}, with HOG everywhere {full:.4f}.", ""]
    names = [n for n in every[0]["curves"] if all(n in run["curves"] for run in every)]
    names.sort(key=lambda n: np.mean([at(run, n, 0.2) for run in every]))
    rows = []
    for name in names:
        means = [f"{np.mean([at(run, name, s) for run in every]):.4f}" for s in SHOWN]
        loss = interval([run["all"] - at(run, name, 0.5) for run in every])
        beside = interval([at(run, name, 0.2) - at(run, "gap", 0.2) for run in every])
        rows.append((name, *means, loss, beside))
    titles = ("policy", *(f"{s:.0%}" for s in SHOWN), "loss at 50 %, points", "beside the gap at 20 %")
    return [*lines, markdown(titles, rows, lambda row: row[0] not in NAMED, "the other policies"), ""]


def _goals_by_word(found: dict[int, Any], results: dict[str, Any]) -> list[str]:
    """What the goals ask of words that no chain has seen, beside what was measured."""

    def lost(share: float) -> str:
        return interval([run["all"] - at(run, "one-shot complex", share) for run in found.values()])

    gain = [at(run, "one-shot complex", 0.2) - at(run, "gap", 0.2) for run in found.values()]
    rows = [
        ("letter accuracy with HOG everywhere", "0.885", f"{np.mean([run['all'] for run in found.values()]):.4f}"),
        ("loss of one-shot complex at 50 / 30 %, points", "0.3 / 1.4", f"{lost(0.5)} / {lost(0.3)}"),
        ("one-shot complex better than the gap at 20 %, points", "0.4", interval(gain)),
    ]
    if alone := {split: results[f"alone/{split}"] for split in found if f"alone/{split}" in results}:
        rows.append(
            (
                "the chain better than letters alone, points",
                "1",
                interval([found[s]["all"] - a for s, a in alone.items()]),
            )
        )
    return [markdown(("what", "goal", "measured"), rows), ""]


def _goals(found: dict[int, Any], results: dict[str, Any]) -> list[str]:
    """What the goals ask, beside what was measured."""
    every = list(found.values())

    def loss(name: str, share: float) -> float:
        return 100 * float(np.mean([run["all"] - at(run, name, share) for run in every]))

    def gain(name: str, other: str) -> float:
        return 100 * float(np.mean([at(run, name, 0.2) - at(run, other, 0.2) for run in every]))

    rows = [
        ("letter accuracy cheap / all", "0.880 / 0.952", f"{np.mean([r['cheap'] for r in every]):.4f} / "
         f"{np.mean([r['all'] for r in every]):.4f}"),
        ("loss of one-shot complex at 50 / 30 / 20 %, points", "0.1 / 0.5 / 1.4",
         " / ".join(f"{loss('one-shot complex', s):.2f}" for s in (0.5, 0.3, 0.2))),
        ("one-shot complex better than the gap at 20 %", "0.3", f"{gain('one-shot complex', 'gap'):.2f}"),
        ("loss of one-shot simple at 50 %", "0.8", f"{loss('one-shot simple', 0.5):.2f}"),
    ]  # fmt: skip
    if "anytime" in every[0]["curves"]:
        rows += [
            ("loss of anytime, one threshold, at 20 %", "1.35", f"{loss('anytime', 0.2):.2f}"),
            (
                "anytime beside the gap decoded again, at 20 %",
                "not below",
                f"{gain('anytime', 'gap, decoded again'):+.2f}",
            ),
        ]
    if "exact/0" in results:
        rows.append(("trajectory as good as the best of all states", "0.97", f"{results['exact/0']['trajectory']:.4f}"))
    if "times" in results:
        whole = results["times"]["whole"]
        best = max(
            (whole["all"] / whole[name][k], name, share)
            for name in whole if isinstance(whole[name], list)
            for k, share in enumerate(SHARES)
            if name in every[0]["curves"] and loss(name, share) <= 0.5
        )  # fmt: skip
        rows.append(
            ("speed-up of the whole at a loss of at most 0.5", "2", f"{best[0]:.2f} ({best[1]} at {best[2]:.0%})")
        )
    if "speed" in results:
        s = results["speed"]
        both = f"{s['training']:.2f} s, {s['training of crfsuite']:.2f} s"
        rows += [
            ("training time, pixels, 40 epochs, beside crfsuite's averaged perceptron", "0.5",
             f"{s['training'] / s['training of crfsuite']:.2f} ({both})"),
            ("decoding, us a letter", "0.5", f"{s['decoding']:.2f}"),
        ]  # fmt: skip
    lines = ["## Goals", "", markdown(("what", "goal", "measured"), rows), ""]
    return lines + (_plainly(results["times"], gain("one-shot complex", "gap")) if "times" in results else [])


def _plainly(times: dict[str, Any], gain: float) -> list[str]:
    """What the learned policy adds to the plain gap, in accuracy and in time, and why the whole is not faster."""
    learned, plain = times["pieces"]["features and policy, complex"], times["pieces"]["gap"]
    return [
        f"At 20 % the learned policy reads {gain:+.2f} points more than the plain gap for {learned:.2f} us a letter "
        f"instead of {plain:.2f}: where features are this cheap, the gap is the better system.",
        "",
    ]


def _times(times: dict[str, Any]) -> list[str]:
    whole = times["whole"]
    rows = [(n, *(f"{whole[n][SHARES.index(s)]:.2f}" for s in SHOWN)) for n in whole if isinstance(whole[n], list)]
    return [
        "## Total time", "",
        "CPU microseconds a letter, from pixels to labels, of split 0's test words, medians: "
        f"without HOG {whole['cheap']:.2f}, with HOG everywhere {whole['all']:.2f}.", "",
        rest("total time by share", markdown(("system", *(f"{s:.0%}" for s in SHOWN)), rows)), "",
        rest("times of the pieces", "The pieces, for each letter that they are done for: "
             f"{'; '.join(f'{k} {v:.2f}' for k, v in times['pieces'].items())}."),
        "![Letter accuracy and total time, figure 3 of the paper redrawn](words-figure-3.svg)", "",
    ]  # fmt: skip


def _picture(found: dict[int, Any], times: dict[str, Any]) -> None:
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(6.4, 4.2))
    every, whole = list(found.values()), times["whole"]
    ends = [(whole[k], np.mean([run[k] for run in every])) for k in ("cheap", "all")]
    for name in (n for n in DRAWN if n in every[0]["curves"]):
        means = [np.mean([at(run, name, s) for run in every]) for s in SHARES]
        axes.plot(whole[name], means, marker=".", label=name)
    for (x, value), text in zip(ends, ("pixels", "HOG everywhere"), strict=True):
        axes.plot([x], [value], "k*")
        axes.annotate(text, (x, value), textcoords="offset points", xytext=(4, -10))
    axes.set(xlabel="CPU time, us a letter, whole system", ylabel="letters read right", xlim=(0, 1.6 * whole["all"]))
    axes.legend(fontsize=7)
    figure.tight_layout()
    save(figure, PAGES / "words-figure-3.svg")
    plot.close(figure)


def page(results: dict[str, Any]) -> str:
    """The page."""
    lines, random = [""], runs(results, "random")
    if random:
        lines += _goals(random, results)
        lines += ["## Random splits, 90 % of the words train", "", *table(random)]
    if words := runs(results, "words"):
        steps = sorted({run["step"] for run in words.values()})
        chosen = (
            f"inner folds by word chose a transition step of {', '.join(f'{s:g}' for s in steps)} of the weights' step."
        )
        lines += ["## By distinct word", "", f"6 of the 55 words are held out whole; {chosen}", ""]
        lines += [*_goals_by_word(words, results), *table(words)]
    if "exact/0" in results:
        said = "; ".join(f"{k} {v:.4f}" for k, v in results["exact/0"].items() if k != "words")
        about = "training words of up to 10 letters whose pseudo-label is as good as the best of all states"
        lines += ["## Pseudo-labels", "", f"Share of {results['exact/0']['words']} {about}: {said}.", ""]
    if "times" in results:
        lines += _times(results["times"])
    if "speed" in results:
        about = "Pixels alone, 40 epochs; training in CPU seconds, times in microseconds a letter: "
        said = "; ".join(f"{k} {v:.3f}" for k, v in results["speed"].items())
        lines.append(rest("each figure beside python-crfsuite", f"## Beside python-crfsuite\n\n{about}{said}."))
    return "\n".join(lines).rstrip() + "\n"


def draw(results: dict[str, Any]) -> None:
    """The picture, if times were measured."""
    if "times" in results and (random := runs(results, "random")):
        _picture(random, results["times"])
