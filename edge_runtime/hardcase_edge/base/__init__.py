"""What every other room builds on: records, and files written whole or not at all."""
