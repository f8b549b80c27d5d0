"""Hostile and broken submissions to week 3, each with the outcome it is due, and the test that grades them all."""
