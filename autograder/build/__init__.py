"""From one text notebook per week to the instructor's, the student's and the solution notebook."""
