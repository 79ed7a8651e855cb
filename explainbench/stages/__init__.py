"""The verbs of the pipeline, one per DVC stage: order and paths only."""
