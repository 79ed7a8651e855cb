"""The nouns of the benchmark: windows, forecasters, explanations, evidence, cells. Imports nothing of ours."""
