"""C, the component metrics: one file each."""
