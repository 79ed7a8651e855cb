"""G, the registered explanation methods: one file each."""
