"""Verdicts on what clients saw: is there one order that explains all answers, or is there none."""
