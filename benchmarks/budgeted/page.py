from pathlib import Path
PAGE = Path("/tmp/fg/page.md")
def page(r): return ""
