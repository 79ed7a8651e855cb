"""Methods that explain rows of tables: one file each, in a registry of their own because they need background rows."""
