"""A folder of C99 for a microcontroller."""
