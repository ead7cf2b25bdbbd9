"""Objectives of pretraining: one protocol, and a file for each."""
