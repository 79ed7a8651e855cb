"""M, the registered forecasting models: one file each."""
