"""Builds the instructor's, the student's and the solution notebook from one text notebook per week."""
