"""From a configuration to a build folder."""
