# SPDX-License-Identifier: Apache-2.0
"""A target of a package of one's own: ``hardcase export build --mermaid FOLDER`` draws the policy as a flow chart."""

from pathlib import Path

from hardcase_edge.base.escape import terminal
from hardcase_edge.program.definition import Acquire, Answer, Branch, Forward, Node, Select
from hardcase_export.targets import MODELS, Output, Source, Target


def words_and_arrows(node: Node, sensors: tuple[str, ...]) -> tuple[str, dict[str, int]]:
    """What a node does, and where it leads: the number of a node by the text of the arrow."""
    match node:
        case Acquire():
            return "read " + ", ".join(sensors[s] for s in node.sensors), {"read": node.then, "lost": node.otherwise}
        case Branch():
            return f"{node.rule} of scorer {node.scores.scorer}", {str(k): t for k, t in enumerate(node.targets)}
        case Select():
            sizes = {f"up to {c.max_size}": c.target for c in node.candidates}
            return "size of the item", sizes | {"larger": node.otherwise}
        case Forward():
            return "ask f0", {"no reply": node.fallback}
        case Answer():
            return f"answer by scorer {node.scores.scorer}", {}


def make(source: Source, folder: Path, switches: frozenset[str]) -> Output:
    """The chart in Mermaid's language, and its entry in ``models.json``."""
    manifest, lines = source.loaded.manifest, ["flowchart TD"]
    for k, node in enumerate(source.loaded.bundle.program.nodes):
        words, arrows = words_and_arrows(node, manifest.sensors)
        shown = "".join(c if c.isalnum() or c in " ,.-_()" else f"#{ord(c)};" for c in terminal(words))  # no directive
        lines.append(f'  n{k}["{shown}"]')
        lines += [f"  n{k} -->|{text}| n{target}" for text, target in arrows.items()]
    data = ("\n".join(lines) + "\n").encode()
    entry = {"file": "policy.mmd", "bytes": len(data)}
    return Output({"policy.mmd": data}, [entry], [f"{folder / 'policy.mmd'}: {len(data)} bytes"])


MERMAID = Target("also write the policy as a flow chart, policy.mmd, there", make, MODELS)
