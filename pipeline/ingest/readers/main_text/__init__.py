"""The main text of a web page: blocks of its text in one pass of a kernel over the parsed page, a small learned model that says
which of them are main text, and the blocks that stay as text with paragraphs, lists, tables and code apart."""
