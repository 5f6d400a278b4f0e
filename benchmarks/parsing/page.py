# SPDX-License-Identifier: Apache-2.0
"""The page and the pictures of ``benchmarks/parsing``."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.pages import PAGES, markdown, pyplot, rest, save

SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
SHOWN = (0.05, 0.1, 0.2, 0.5)
NAMED = ("myopic", "margin", "one-shot simple", "gap", "one-shot complex", "anytime")
DRAWN = ("uniform words", "uniform sentences", "myopic", "margin", "one-shot simple", "one-shot complex")


def _parts(results: dict[str, Any], tags: str) -> dict[str, Any]:
    """The results on gold tags, or those on our own."""
    parts = ("parser", "supertags", "policies", "speed")
    return {name: results[tags + name] for name in parts if tags + name in results}


def _figures(results: dict[str, Any]) -> dict[str, str]:
    """What is measured of each goal, on one kind of tags."""
    out: dict[str, str] = {}
    if "parser" in results:
        p = results["parser"]
        out["UAS with all features"] = f"{p['all']:.4f}"
        out["training, 10 epochs, s"] = f"{p['training s']:.0f}"
        out["parsing with all features, us a word"] = f"{p['parsing us']:.1f}"
        out["Eisner, us a word"] = f"{p['eisner us']:.2f}"
    if "supertags" in results:
        p = results["supertags"]
        out["UAS with all features"] += f"; with supertags {p['all']:.4f}"
        out["training, 10 epochs, s"] += f"; with supertags {p['training s']:.0f}"
        out["parsing with all features, us a word"] += f"; with supertags {_us_with_supertags(p):.1f}"
    if "policies" in results:
        p = results["policies"]
        at = [100 * (p["all"] - p["curves"]["one-shot complex"][SHARES.index(s)]) for s in (0.5, 0.1)]
        out["loss at 50 / 10 % of words, one-shot complex, points"] = f"{at[0]:.2f} / {at[1]:.2f}"
    if "speed" in results:
        full = results["speed"][0]
        for loss in (0.5, 1.0):
            fits = [r for r in results["speed"] if 100 * (full["uas"] - r["uas"]) <= loss]
            best = min(fits, key=lambda r: r["us"])
            by = "" if best["dictionary"] == "no" else f", dictionary {best['dictionary']}"
            out[f"total speed-up at a loss of {loss} points"] = f"{full['us'] / best['us']:.2f} ({best['system']}{by})"
    return out


def _us_with_supertags(p: dict[str, float]) -> float:
    """Microseconds a word of supertags and of the parser that reads them."""
    return p["parsing us"] + p["supertags, us"]


GOALS = {
    "UAS with all features": "0.875",
    "training, 10 epochs, s": "60",
    "parsing with all features, us a word": "12",
    "Eisner, us a word": "1",
    "loss at 50 / 10 % of words, one-shot complex, points": "0.05 / 0.4",
    "total speed-up at a loss of 0.5 points": "3.5",
    "total speed-up at a loss of 1.0 points": "4",
}


def _goals(results: dict[str, Any]) -> list[str]:
    gold, own = (_figures(_parts(results, tags)) for tags in ("", "own/"))
    rows = [(what, goal, gold.get(what, ""), own.get(what, "")) for what, goal in GOALS.items()]
    if "decoders" in results:
        worst = max(row["ours"] / row["ufal"] for row in results["decoders"])
        rows.append(("Chu-Liu-Edmonds beside ufal's, times", "1.5", f"{worst:.2f} at worst", ""))
    lines = ["## Goals", "", markdown(("what", "goal", "gold tags", "tags of our own tagger"), rows), ""]
    if "own/tagger" in results:
        t = results["own/tagger"]
        lines += [
            f"The tagger takes {t['training s']:.0f} s to train and {t['tagging us']:.1f} us a word, which no time "
            f"here contains; {100 * t['fine tags, dev']:.1f} % of the fine tags of the development file are right.",
            "",
        ]
    return lines


def _supertags(results: dict[str, Any]) -> list[str]:
    """The parser that reads supertags."""
    p = results["supertags"]
    return [
        "## With supertags", "",
        "A supertag is what a word is to its head, on which side that is, and the sides of dependents (Ouchi, Duh and "
        f"Matsumoto 2014); a linear model gets {100 * p['supertags, accuracy']:.1f} % of "
        f"{p['supertags, labels']:.0f} right in {p['supertags, us']:.1f} us a word.",
        f"The parser then has a UAS of {p['all']:.4f} with all features ({p['tags']:.4f} with tags alone) at "
        f"{_us_with_supertags(p):.1f} us a word; the policies below do without supertags.", "",
    ]  # fmt: skip


def _curves(p: dict[str, Any], tags: str) -> list[str]:
    rows = [
        (
            name,
            *(f"{p['curves'][name][SHARES.index(s)]:.4f}" for s in SHOWN),
            f"{100 * (p['all'] - p['curves'][name][1]):+.2f}",
        )
        for name in sorted(p["curves"], key=lambda k: float(p["curves"][k][1]))
    ]
    titles = ("policy", *(f"{s:.0%}" for s in SHOWN), "loss at 10 %, points")
    return [
        f"## Which words, {tags}", "",
        "UAS by the share of words with costly templates, without a dictionary; "
        f"with tags alone {p['tags']:.4f}, with all features {p['all']:.4f}.", "",
        markdown(titles, rows, lambda row: row[0] not in NAMED, "the other policies"), "",
    ]  # fmt: skip


WORDS = [
    "`margin` is the best head's score minus the second best, `gap` how much the tree that is decoded from tags loses "
    "with another head here; neither learns.",
    "`gap, decoded again` and `anytime` (algorithms 1 and 2) decode after each purchase; `complex` looks at that tree "
    "and its gaps; `myopic` and `item value` buy for whole sentences.",
    "",
]


def _speed(rows: list[dict[str, Any]], tags: str, is_whole: bool, is_first: bool) -> list[str]:
    full, n = rows[0], len(rows)
    what_adds = _what_adds(rows)
    if not is_whole:
        rows = [r for r in rows if "%" not in r["system"]
                or not any(o["us"] < r["us"] and o["uas"] >= r["uas"] for o in rows)]  # fmt: skip
    dictionaries = list(dict.fromkeys(r["dictionary"] for r in rows))
    by = {(r["system"], r["dictionary"]): f"{r['uas']:.4f} @ {r['us']:.2f} ({full['us'] / r['us']:.2f})" for r in rows}
    cells = [
        (system, *(by.get((system, d), "") for d in dictionaries))
        for system in dict.fromkeys(r["system"] for r in rows)
    ]
    left = f"Of {n} systems, those without a policy and those that no other beats in both; `--all` prints the others."
    about = [
        "UAS at CPU microseconds a word, from tokens to heads (speed-up), by dictionary of edges' lengths: none, the "
        "longest of training, or with a price for an edge that is scored.",
        "Policies buy on the 4 best heads of a word; the percentage is of training words.",
        *([left] if len(rows) < n else []),
        "",
    ]
    table = markdown(("system", *dictionaries), cells)
    return [
        f"## Total time, {tags}", "", *(about if is_first else []),
        table if is_first else rest("total time on our own tags", table), "", *what_adds, "",
    ]  # fmt: skip


def _what_adds(rows: list[dict[str, Any]]) -> list[str]:
    """The dictionary's speed-up alone, and that of the fastest policy without and with it, at 0.5 points."""
    full = rows[0]

    def best(dictionary: bool) -> float:
        fits = [r for r in rows if (r["dictionary"] != "no") == dictionary and 100 * (full["uas"] - r["uas"]) <= 0.5]
        return max((float(full["us"] / r["us"]) for r in fits), default=float("nan"))

    alone = next(r for r in rows if r["dictionary"] == "longest" and r["system"] == "all features")
    return [
        f"The dictionary alone is {full['us'] / alone['us']:.2f} times as fast at a loss of "
        f"{100 * (full['uas'] - alone['uas']):.2f} points.",
        f"At a loss of at most 0.5 points, what needs no dictionary is {best(False):.2f} times as fast as "
        f"all features, and with one {best(True):.2f} times.",
    ]


def draw(results: dict[str, Any]) -> None:
    plot = pyplot()
    if "speed" in results:
        figure, axes = plot.subplots(figsize=(6.4, 4.2))
        for label, chosen in (
            ("margin", "margin"), ("one-shot simple", "one-shot simple"), ("one-shot complex", "one-shot complex"),
        ):  # fmt: skip
            for dictionary, style in (("no", ".--"), ("longest", ".-"), ("0.005", ".:")):
                own = [r for r in results["speed"] if r["system"].startswith(chosen) and r["dictionary"] == dictionary]
                axes.plot([r["us"] for r in own], [r["uas"] for r in own], style,
                          label=label + ("" if dictionary == "no" else f", dictionary {dictionary}"))  # fmt: skip
        for r in (r for r in results["speed"] if "%" not in r["system"]):
            axes.plot([r["us"]], [r["uas"]], "k*")
            text = r["system"] + ("" if r["dictionary"] == "no" else f", dictionary {r['dictionary']}")
            axes.annotate(text, (r["us"], r["uas"]), textcoords="offset points", xytext=(4, -8), fontsize=6)
        axes.set(xlabel="CPU time, us a word, whole system", ylabel="UAS")
        axes.legend(fontsize=7)
        figure.tight_layout()
        save(figure, PAGES / "parsing-figure-4.svg")
        plot.close(figure)
    if "policies" in results:
        figure, axes = plot.subplots(figsize=(5.2, 3.2))
        for k, (name, shares) in enumerate(results["policies"]["depth"].items()):
            axes.bar(np.arange(8) + 0.4 * k - 0.2, shares, width=0.4, label=name)
        axes.set(xlabel="depth in the gold tree, 7 and more together", ylabel="share of words")
        axes.legend()
        figure.tight_layout()
        save(figure, PAGES / "parsing-depth.svg")
        plot.close(figure)


def _beside_udpipe(results: dict[str, Any]) -> list[str]:
    """UDPipe after each number of iterations, and our parser beside the one of the most."""
    models = {int(k.split("/")[1]): v for k, v in results.items() if k.startswith("udpipe/")}
    lines = ["## Beside UDPipe", ""]
    if not models:
        return [*lines, "`--udpipe 10` trains UDPipe 1.4 for 10 iterations, about an hour; it has not been run here."]
    columns = ("greedy, uas", "greedy, us", "beam 5, uas", "beam 5, us", "training s")
    rows = [
        (str(n), *(f"{row[c]:.4f}" if c.endswith("uas") else f"{row[c]:.0f}" for c in columns))
        for n, row in sorted(models.items())
    ]
    titles = ("iterations", "greedy, UAS", "greedy, us a word", "beam 5, UAS", "beam 5, us a word", "training, s")
    lines += ["Gold tags; `--udpipe ITERATIONS` trains it.", "", markdown(titles, rows), ""]
    if "parser" in results and "udpipe us" in results:
        theirs, us = models[max(models)], results["udpipe us"]["beam 5, us"]
        ours = [("Our parser", results["parser"]["all"], results["parser"]["parsing us"])]
        if "supertags" in results:
            with_ = results["supertags"]
            ours.append(("With supertags it", with_["all"], _us_with_supertags(with_)))
        lines += [
            "The long trainings ran on an earlier and slower machine.",
            f"Timed beside our parser, after a short training, a beam of 5 takes {us:.0f} us a word and greedy "
            f"parsing {results['udpipe us']['greedy, us']:.0f} us.",
            *(_against(name, uas, took, theirs["beam 5, uas"], us) for name, uas, took in ours),
            f"The goal was its UAS after {max(models)} iterations at a tenth of its time.",
        ]
    return lines


def _against(name: str, uas: float, us: float, their_uas: float, their_us: float) -> str:
    points = 100 * (uas - their_uas)
    return (
        f"{name} has a UAS of {uas:.4f}, {abs(points):.2f} points {'above' if points >= 0 else 'below'} that beam's, "
        f"at {us:.1f} us a word, {us / their_us:.2f} of its time."
    )


def page(results: dict[str, Any], is_whole: bool = False) -> str:
    """The page and its pictures."""
    lines = ["", *([results["earlier"], ""] if "earlier" in results else []), *_goals(results)]
    if "variants" in results:
        rows = [(k, f"{v:.4f}") for k, v in results["variants"].items()]
        about = "MIRA under random states, gold tags."
        lines.append(rest("variants of the parser", f"## The parser\n\n{about}\n\n{markdown(('what', 'UAS'), rows)}\n"))
    if "supertags" in results:
        lines += _supertags(results)
    kinds = (("gold tags", _parts(results, "")), ("our own tags", _parts(results, "own/")))
    for tags, found in (kind for kind in kinds if "policies" in kind[1]):
        text = "\n".join(_curves(found["policies"], tags))
        lines.append(text if tags == kinds[0][0] else rest("policies on our own tags", text))
    if "policies" in results:
        lines += [*WORDS, "![Depth of words in gold trees, figure 4 of the paper redrawn](parsing-depth.svg)", ""]
    for tags, found in (kind for kind in kinds if "speed" in kind[1]):
        lines += _speed(found["speed"], tags, is_whole, tags == kinds[0][0])
    if "speed" in results:
        lines += ["![UAS and total time, gold tags, figure 4 of the paper redrawn](parsing-figure-4.svg)", ""]
    if "decoders" in results:
        columns = ("words", "ours", "ours, single root", "ufal", "eisner")
        rows = [tuple(f"{row[k]:.3g}" for k in columns) for row in results["decoders"]]
        about = "Microseconds a word on random scores, by words of a sentence."
        lines.append(rest("times of the decoders", f"## Decoders\n\n{about}\n\n{markdown(columns, rows)}\n"))
    lines += _beside_udpipe(results)
    return "\n".join(lines).rstrip() + "\n"


def whole(results: dict[str, Any]) -> str:
    """The page with all systems whose total time was measured."""
    return page(results, is_whole=True)
