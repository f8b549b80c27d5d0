"""`make similarity`: pairs of submissions that share more than the exercises force.

`lexer` makes tokens of an answer, `answers` reads a class and what everybody was given, `fingerprints` finds what two
answers share and how rare it is, `honest` simulates classes in which nobody copied, `compare` ranks the pairs and draws
the line, `page` writes what the instructor reads. Student files are read through the intake, and nothing is run.
"""
