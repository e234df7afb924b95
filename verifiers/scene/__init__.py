"""Verdicts on 3D models: formats, gates, constraints, comparison, programs and pictures."""
