"""Models of tables: one file each, in a registry of their own because they forecast nothing."""
