"""The command line: parses, calls, prints; nothing else. One file per group of commands."""
