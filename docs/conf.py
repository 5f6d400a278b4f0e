project = "hardcase"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
include_patterns = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs/**", "examples/**"]
exclude_patterns = ["build"]
root_doc = "README"
html_theme = "furo"
myst_heading_anchors = 4
