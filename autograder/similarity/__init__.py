"""`make similarity`: pairs of submissions that share more than the exercises require.

`lexer` splits an answer into tokens, `answers` reads a class and what everybody was given, `fingerprints` finds what
two answers share and how rare it is, `honest` simulates classes in which nobody copied, `compare` ranks the pairs and
draws the line, `page` writes the instructor's page. Student files are read through the intake, and no code is run.
"""
