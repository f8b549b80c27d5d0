"""`make site`: the course as pages to read, a third product of source/weekN_….py beside notebooks and solutions.

The pages are Markdown, made from the built notebooks, the kernels' docstrings and docs/; Sphinx turns them into the
site. No page shows an exercise's answer, a hidden test or a mark scheme: week pages start from students' notebooks.
"""
