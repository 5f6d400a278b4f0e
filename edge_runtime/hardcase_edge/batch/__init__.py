"""Programs on many rows at once, with numpy, for machines that train and export; nothing on a device imports it."""
