"""Readers of models trained elsewhere: each gives a ``Source`` of plain numbers, all of them checked."""
