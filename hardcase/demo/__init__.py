"""Parts of the demonstration: its processes and its report."""
