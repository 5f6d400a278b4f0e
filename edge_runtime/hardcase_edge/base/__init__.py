"""What every room stands on: records and files."""
