"""ExplainBench beside MLflow: publishing, boards by query, lineage. The only package that imports mlflow."""
