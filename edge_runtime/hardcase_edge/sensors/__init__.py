"""Where readings come from: recorded files, thermal zones, functions of the user."""
