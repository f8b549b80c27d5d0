"""Sphinx's settings for the site. Nothing in the output may depend on the time, the machine or the network."""

from pathlib import Path

project = "Positional encodings in Transformers"
language = "en"
extensions = ["myst_parser", "autograder.site.extension"]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["dollarmath"]
myst_dmath_double_inline = True
myst_heading_anchors = 3

highlight_language = "text"  # code without a named language is not taken for Python
smartquotes = False  # the text already has the quotes it needs
add_module_names = False
html_math_renderer = "course"

html_theme = "furo"
html_title = project
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_use_index = True
html_domain_indices = False
html_theme_options = {"navigation_with_keys": True}
