"""What training leaves: the front and its rows."""
