"""Arithmetic on results: no model and no method is ever called here."""
