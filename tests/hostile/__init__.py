"""Hostile and broken submissions to week 3, each with its expected outcome, and the test that grades them all."""
