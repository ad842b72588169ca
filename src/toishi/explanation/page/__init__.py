"""Pages: what is told, apart from how it is drawn.

blocks.py         what a page is made of: sections of paragraphs, tables, bars, tokens, checks
markup.py         the two marks that texts may carry; marked.py: the same as HTML
catalogue.py      message catalogues: a language is a file
render_*.py       the blocks drawn: one HTML file, or a terminal
lookup.js         the one script there is: it puts what was computed before in its place (render_lookup.py)
"""
